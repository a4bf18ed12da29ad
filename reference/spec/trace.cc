#include "reference/spec/trace.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "reference/spec/enum_text.h"
#include "reference/spec/error.h"
#include "reference/spec/operation_text.h"
#include "reference/spec/text.h"
#include "reference/spec/trace_limits.h"

namespace kvcheck {
namespace {

constexpr EnumNames<CacheOpKind, kCacheOpKinds> kKinds = {
    {{CacheOpKind::kNew, "new"},
     {CacheOpKind::kAppend, "append"},
     {CacheOpKind::kPrepare, "prepare"},
     {CacheOpKind::kFinalize, "finalize"},
     {CacheOpKind::kTrim, "trim"},
     {CacheOpKind::kFilter, "filter"},
     {CacheOpKind::kExtend, "extend"},
     {CacheOpKind::kMerge, "merge"},
     {CacheOpKind::kExtract, "extract"},
     {CacheOpKind::kToQuantized, "to_quantized"},
     {CacheOpKind::kCopy, "copy"},
     {CacheOpKind::kSave, "save"},
     {CacheOpKind::kLoad, "load"},
     {CacheOpKind::kDamage, "damage"},
     {CacheOpKind::kAttend, "attend"},
     {CacheOpKind::kDrop, "drop"}}};
constexpr EnumNames<Observe, 2> kObserve = {{{Observe::kEach, "each"}, {Observe::kLast, "last"}}};
constexpr EnumNames<WrongColumns, kWrongColumns> kWrong = {
    {{WrongColumns::kRows, "rows"},
     {WrongColumns::kHeads, "heads"},
     {WrongColumns::kKDim, "k_dim"},
     {WrongColumns::kVDim, "v_dim"},
     {WrongColumns::kType, "type"},
     {WrongColumns::kFewerRows, "fewer_rows"},
     {WrongColumns::kFewerHeads, "fewer_heads"},
     {WrongColumns::kFewerColumns, "fewer_v"}}};
constexpr EnumNames<Damage, 4> kDamages = {{{Damage::kTruncate, "truncate"},
                                            {Damage::kFlip, "flip"},
                                            {Damage::kForeign, "foreign"},
                                            {Damage::kVersion, "version"}}};

int64_t ParseNumber(Piece piece) {
  return ParseInt(piece, -trace_limits::kMaxNumber, trace_limits::kMaxNumber);
}

std::vector<int64_t> ParseNumbers(Piece piece) {
  std::vector<int64_t> numbers;
  for (const Piece& number : Split(piece, ',')) numbers.push_back(ParseNumber(number));
  return numbers;
}

int ParseSlot(Piece piece) {
  if (piece.text.size() != 1 || piece.text[0] < 'A' || piece.text[0] >= 'A' + kSlots) {
    piece.Refuse(fmt::format("'{}' is not a slot; slots are A, B, C, D, E", piece.text));
  }
  return piece.text[0] - 'A';
}

int ParseKey(Piece piece) { return ParseStateKey(piece, kStateKeys); }

void ParseNewFields(Words* words, CacheOp* op) {
  Fields fields = words->TakeFields("rows, pad, layout, k, v");
  Piece value;
  op->count = fields.TakeIf("rows", &value) ? ParseInt(value, 0, trace_limits::kMaxExtent) : 1;
  if (fields.TakeIf("pad", &value)) op->numbers = ParseNumbers(value);
  if (fields.TakeIf("layout", &value)) op->layout = ParseCacheLayout(value);
  if (fields.TakeIf("k", &value)) op->k = ParseKvFormat(value);
  if (fields.TakeIf("v", &value)) op->v = ParseKvFormat(value);
  fields.Finish();
}

void ParseAttend(Words* words, CacheOp* op) {
  op->slot = ParseSlot(words->Take("a slot"));
  while (true) {
    // `sinks` is a word of its own and stands last.
    if (words->HasBareWord()) {
      const Piece word = words->Take("sinks");
      if (word.text != "sinks") word.Refuse("attend knows window=N, scale=X and sinks");
      op->sinks = true;
      return;
    }
    Piece word;
    if (!words->TakeIfAny(&word)) return;
    const std::string_view key = word.text.substr(0, word.text.find('='));
    const Piece value = {word.text.substr(key.size() + 1), word.whole};
    if (key == "window" && !op->window && !op->scale) {
      op->window = ParseNumber(value);
    } else if (key == "scale" && !op->scale) {
      op->scale = ParseReal(value);
    } else {
      word.Refuse("attend knows window=N, scale=X and sinks, once each and in this order");
    }
  }
}

CacheOp ParseOp(Piece line) {
  Words words(line);
  CacheOp op;
  op.kind = ParseEnum(kKinds, words.Take("an operation"));
  switch (op.kind) {
    case CacheOpKind::kNew:
      op.slot = ParseSlot(words.Take("a slot"));
      ParseNewFields(&words, &op);
      break;
    case CacheOpKind::kAppend: {
      op.slot = ParseSlot(words.Take("a slot"));
      op.count = ParseInt(words.Take("the number of columns"), 1, trace_limits::kMaxColumns);
      Fields fields = words.TakeFields("wrong");
      Piece value;
      if (fields.TakeIf("wrong", &value)) op.wrong = ParseEnum(kWrong, value);
      fields.Finish();
      break;
    }
    case CacheOpKind::kPrepare:
    case CacheOpKind::kFilter:
      op.slot = ParseSlot(words.Take("a slot"));
      if (words.HasBareWord()) op.numbers = ParseNumbers(words.Take("numbers"));
      break;
    case CacheOpKind::kFinalize:
    case CacheOpKind::kDrop:
      op.slot = ParseSlot(words.Take("a slot"));
      break;
    case CacheOpKind::kTrim:
      op.slot = ParseSlot(words.Take("a slot"));
      op.count = ParseNumber(words.Take("the number of tokens"));
      break;
    case CacheOpKind::kExtend:
      op.slot = ParseSlot(words.Take("a slot"));
      op.target = ParseSlot(words.Take("a second slot"));
      break;
    case CacheOpKind::kMerge:
      for (const Piece& slot : Split(words.Take("slots"), ',')) {
        op.operands.push_back(ParseSlot(slot));
      }
      words.TakeArrow();
      op.target = ParseSlot(words.Take("a slot"));
      break;
    case CacheOpKind::kExtract:
      op.slot = ParseSlot(words.Take("a slot"));
      op.count = ParseNumber(words.Take("a row"));
      words.TakeArrow();
      op.target = ParseSlot(words.Take("a slot"));
      break;
    case CacheOpKind::kToQuantized: {
      op.slot = ParseSlot(words.Take("a slot"));
      Fields fields = words.TakeFields("k, v");
      op.k = ParseKvFormat(fields.Take("k"));
      Piece value;
      op.v = fields.TakeIf("v", &value) ? ParseKvFormat(value) : *op.k;
      fields.Finish();
      break;
    }
    case CacheOpKind::kCopy:
      op.slot = ParseSlot(words.Take("a slot"));
      words.TakeArrow();
      op.target = ParseSlot(words.Take("a slot"));
      break;
    case CacheOpKind::kSave:
      op.slot = ParseSlot(words.Take("a slot"));
      op.key = ParseKey(words.Take("a saved state"));
      break;
    case CacheOpKind::kLoad:
      op.key = ParseKey(words.Take("a saved state"));
      words.TakeArrow();
      op.target = ParseSlot(words.Take("a slot"));
      break;
    case CacheOpKind::kDamage: {
      op.key = ParseKey(words.Take("a saved state"));
      op.damage = ParseEnum(kDamages, words.Take("a kind of damage"));
      Fields fields = words.TakeFields("at");
      Piece value;
      if (fields.TakeIf("at", &value)) op.at = ParseInt(value, 0, trace_limits::kMaxNumber);
      fields.Finish();
      break;
    }
    case CacheOpKind::kAttend:
      ParseAttend(&words, &op);
      break;
  }
  words.Finish();
  return op;
}

CacheSetup ParseSetup(Piece line) {
  Fields fields = SetupFields(line, "cache", "cache k=f32 dk=8 data=tokens:1",
                              "layout, k, v, x, hkv, hq, dk, dv, growth, observe, data");
  CacheSetup setup;
  Piece value;
  const auto extent = [](Piece piece) { return ParseInt(piece, 1, trace_limits::kMaxExtent); };
  if (fields.TakeIf("layout", &value)) setup.layout = ParseCacheLayout(value);
  setup.k = ParseKvFormat(fields.Take("k"));
  setup.v = fields.TakeIf("v", &value) ? ParseKvFormat(value) : setup.k;
  if (fields.TakeIf("x", &value)) setup.x = ParseVectorType(value);
  if (fields.TakeIf("hkv", &value)) setup.kv_heads = extent(value);
  setup.query_heads = fields.TakeIf("hq", &value) ? extent(value) : setup.kv_heads;
  setup.k_dim = extent(fields.Take("dk"));
  setup.v_dim = fields.TakeIf("dv", &value) ? extent(value) : setup.k_dim;
  if (fields.TakeIf("growth", &value)) setup.growth_tokens = extent(value);
  if (fields.TakeIf("observe", &value)) setup.observe = ParseEnum(kObserve, value);
  setup.data = ParseDataSource(fields.Take("data"));
  fields.Finish();
  return setup;
}

}  // namespace

std::string_view Name(CacheOpKind kind) { return NameIn(kKinds, kind); }

char SlotName(int slot) { return static_cast<char>('A' + slot); }

std::vector<int> NamedSlots(const CacheOp& op) {
  switch (op.kind) {
    case CacheOpKind::kDamage:
      return {};
    case CacheOpKind::kLoad:
      return {op.target};
    case CacheOpKind::kMerge: {
      std::vector<int> slots = op.operands;
      slots.push_back(op.target);
      return slots;
    }
    case CacheOpKind::kExtend:
    case CacheOpKind::kExtract:
    case CacheOpKind::kCopy:
      return {op.slot, op.target};
    default:
      return {op.slot};
  }
}

std::string_view Name(Damage damage) { return NameIn(kDamages, damage); }

std::string Print(const CacheOp& op) {
  const char slot = SlotName(op.slot);
  const char target = SlotName(op.target);
  std::string text = std::string(Name(op.kind));
  switch (op.kind) {
    case CacheOpKind::kNew:
      text += fmt::format(" {} rows={}", slot, op.count);
      if (!op.numbers.empty()) text += fmt::format(" pad={}", fmt::join(op.numbers, ","));
      if (op.layout) text += " layout=" + Print(*op.layout);
      if (op.k) text += " k=" + Print(*op.k);
      if (op.v) text += " v=" + Print(*op.v);
      return text;
    case CacheOpKind::kAppend:
      text += fmt::format(" {} {}", slot, op.count);
      if (op.wrong != WrongColumns::kNothing) {
        text += fmt::format(" wrong={}", NameIn(kWrong, op.wrong));
      }
      return text;
    case CacheOpKind::kPrepare:
    case CacheOpKind::kFilter:
      text += fmt::format(" {}", slot);
      if (!op.numbers.empty()) text += fmt::format(" {}", fmt::join(op.numbers, ","));
      return text;
    case CacheOpKind::kFinalize:
    case CacheOpKind::kDrop:
      return text + fmt::format(" {}", slot);
    case CacheOpKind::kTrim:
      return text + fmt::format(" {} {}", slot, op.count);
    case CacheOpKind::kExtend:
      return text + fmt::format(" {} {}", slot, target);
    case CacheOpKind::kMerge: {
      std::string slots;
      for (int operand : op.operands) {
        if (!slots.empty()) slots += ',';
        slots += SlotName(operand);
      }
      return text + fmt::format(" {} -> {}", slots, target);
    }
    case CacheOpKind::kExtract:
      return text + fmt::format(" {} {} -> {}", slot, op.count, target);
    case CacheOpKind::kToQuantized:
      return text + fmt::format(" {} k={} v={}", slot, Print(*op.k), Print(*op.v));
    case CacheOpKind::kCopy:
      return text + fmt::format(" {} -> {}", slot, target);
    case CacheOpKind::kSave:
      return text + fmt::format(" {} s{}", slot, op.key);
    case CacheOpKind::kLoad:
      return text + fmt::format(" s{} -> {}", op.key, target);
    case CacheOpKind::kDamage:
      text += fmt::format(" s{} {}", op.key, NameIn(kDamages, op.damage));
      if (op.at != 0) text += fmt::format(" at={}", op.at);
      return text;
    case CacheOpKind::kAttend:
      text += fmt::format(" {}", slot);
      if (op.window) text += fmt::format(" window={}", *op.window);
      if (op.scale) text += fmt::format(" scale={}", PrintReal(*op.scale));
      if (op.sinks) text += " sinks";
      return text;
  }
  return text;
}

std::string Print(const CacheSetup& setup) {
  return fmt::format(
      "cache layout={} k={} v={} x={} hkv={} hq={} dk={} dv={} growth={} observe={} data={}",
      Print(setup.layout), Print(setup.k), Print(setup.v), ShortName(setup.x), setup.kv_heads,
      setup.query_heads, setup.k_dim, setup.v_dim, setup.growth_tokens,
      NameIn(kObserve, setup.observe), Print(setup.data));
}

std::string Print(const CacheCase& c) {
  std::string text = Print(c.setup);
  for (const CacheOp& op : c.ops) text += "; " + Print(op);
  return text;
}

std::string PrintLines(const CacheCase& c) {
  std::string text = Print(c.setup) + "\n";
  for (const CacheOp& op : c.ops) text += Print(op) + "\n";
  return text;
}

CacheCase ParseCacheCase(std::string_view text) {
  CacheCase c;
  ReadOperations(
      text, trace_limits::kMaxOps, [&](Piece piece) { c.setup = ParseSetup(piece); },
      [&](Piece piece) { c.ops.push_back(ParseOp(piece)); });
  ValidateCacheCase(c);
  return c;
}

}  // namespace kvcheck
