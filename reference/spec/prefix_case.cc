#include "reference/spec/prefix_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reference/spec/enum_text.h"
#include "reference/spec/error.h"
#include "reference/spec/operation_text.h"
#include "reference/spec/prefix_limits.h"
#include "reference/spec/prefix_tokens.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

namespace limits = prefix_limits;

constexpr EnumNames<PrefixOpKind, kPrefixOpKinds> kKinds = {{{PrefixOpKind::kOpen, "open"},
                                                             {PrefixOpKind::kWrite, "write"},
                                                             {PrefixOpKind::kRead, "read"},
                                                             {PrefixOpKind::kClose, "close"},
                                                             {PrefixOpKind::kFork, "fork"},
                                                             {PrefixOpKind::kTrimTo, "trim_to"},
                                                             {PrefixOpKind::kEvict, "evict"},
                                                             {PrefixOpKind::kClear, "clear"},
                                                             {PrefixOpKind::kEpoch, "epoch"},
                                                             {PrefixOpKind::kSettle, "settle"},
                                                             {PrefixOpKind::kSave, "save"},
                                                             {PrefixOpKind::kLoad, "load"},
                                                             {PrefixOpKind::kRestart, "restart"},
                                                             {PrefixOpKind::kDamage, "damage"},
                                                             {PrefixOpKind::kObserve, "observe"}}};
constexpr EnumNames<PrefixTier, kPrefixTiers> kTiers = {
    {{PrefixTier::kMemory, "memory"}, {PrefixTier::kDisk, "disk"}}};
constexpr EnumNames<WrongVectors, kWrongVectors> kWrong = {{{WrongVectors::kLayers, "layers"},
                                                            {WrongVectors::kHeads, "heads"},
                                                            {WrongVectors::kKDim, "k_dim"},
                                                            {WrongVectors::kVDim, "v_dim"},
                                                            {WrongVectors::kType, "type"}}};
constexpr EnumNames<FileDamage, kFileDamages> kDamages = {{{FileDamage::kCut, "cut"},
                                                           {FileDamage::kFlip, "flip"},
                                                           {FileDamage::kSwap, "swap"},
                                                           {FileDamage::kCopy, "copy"},
                                                           {FileDamage::kForeign, "foreign"}}};
constexpr EnumNames<Observe, 2> kObserve = {{{Observe::kEach, "each"}, {Observe::kLast, "last"}}};
constexpr EnumNames<bool, 2> kYesNo = {{{false, "no"}, {true, "yes"}}};

int ParseRequest(Piece piece) {
  if (piece.text.size() != 1 || piece.text[0] < 'A' || piece.text[0] >= 'A' + kRequests) {
    piece.Refuse(fmt::format("'{}' is not a request; requests are A to H", piece.text));
  }
  return piece.text[0] - 'A';
}

constexpr std::string_view kIdentityKeys = "model, salt, adapter, version, image";

void TakeIdentity(Fields* fields, PrefixIdentity* who) {
  Piece value;
  if (fields->TakeIf("model", &value)) who->model = DecodePercent(value);
  if (fields->TakeIf("salt", &value)) who->salt = DecodePercent(value);
  if (fields->TakeIf("adapter", &value)) who->adapter = DecodePercent(value);
  if (fields->TakeIf("version", &value)) who->version = ParseInt(value, 1, limits::kMaxNumber);
  if (fields->TakeIf("image", &value)) who->image = DecodePercent(value);
}

void TakeKill(Fields* fields, PrefixOp* op) {
  Piece value;
  if (fields->TakeIf("kill", &value)) op->kill = ParseInt(value, 1, limits::kMaxNumber);
}

void ParseOpen(Words* words, PrefixOp* op) {
  op->request = ParseRequest(words->Take("a request"));
  op->tokens = ParseTokenRuns(words->Take("tokens"));
  op->all = words->TakeIfWord("all");
  static const std::string keys = std::string(kIdentityKeys) + ", from";
  Fields fields = words->TakeFields(keys);
  TakeIdentity(&fields, &op->who);
  Piece value;
  if (fields.TakeIf("from", &value)) op->from = ParseEnum(kTiers, value);
  fields.Finish();
}

void ParseWrite(Words* words, PrefixOp* op) {
  op->request = ParseRequest(words->Take("a request"));
  if (words->HasBareWord()) {
    op->count = ParseInt(words->Take("the number of tokens"), 1, limits::kMaxTokens);
  }
  Fields fields = words->TakeFields("more, wrong");
  Piece value;
  if (fields.TakeIf("more", &value)) op->tokens = ParseTokenRuns(value);
  if (fields.TakeIf("wrong", &value)) op->wrong = ParseEnum(kWrong, value);
  fields.Finish();
}

void ParseRestart(Words* words, PrefixOp* op) {
  op->killed = words->TakeIfWord("killed");
  Fields fields = words->TakeFields("block, x");
  Piece value;
  if (fields.TakeIf("block", &value)) op->block_tokens = ParseInt(value, 1, limits::kMaxExtent);
  if (fields.TakeIf("x", &value)) op->x = ParseVectorType(value);
  fields.Finish();
}

PrefixOp ParseOp(Piece line) {
  Words words(line);
  PrefixOp op;
  op.kind = ParseEnum(kKinds, words.Take("an operation"));
  switch (op.kind) {
    case PrefixOpKind::kOpen:
      ParseOpen(&words, &op);
      break;
    case PrefixOpKind::kWrite:
      ParseWrite(&words, &op);
      break;
    case PrefixOpKind::kRead:
      op.request = ParseRequest(words.Take("a request"));
      break;
    case PrefixOpKind::kClose:
      op.request = ParseRequest(words.Take("a request"));
      op.keep = words.TakeIfWord("keep");
      break;
    case PrefixOpKind::kFork:
      op.request = ParseRequest(words.Take("a request"));
      words.TakeArrow();
      op.target = ParseRequest(words.Take("a request"));
      break;
    case PrefixOpKind::kTrimTo:
      op.request = ParseRequest(words.Take("a request"));
      op.count =
          ParseInt(words.Take("the number of tokens"), -limits::kMaxNumber, limits::kMaxNumber);
      break;
    case PrefixOpKind::kEvict:
      op.count = ParseInt(words.Take("the number of tokens"), 1, limits::kMaxNumber);
      break;
    case PrefixOpKind::kSave:
    case PrefixOpKind::kLoad:
      op.key = ParseStateKey(words.Take("a saved store"), kSavedStores);
      break;
    case PrefixOpKind::kRestart:
      ParseRestart(&words, &op);
      break;
    case PrefixOpKind::kDamage: {
      op.damage = ParseEnum(kDamages, words.Take("a kind of damage"));
      Fields fields = words.TakeFields("at");
      Piece value;
      if (fields.TakeIf("at", &value)) op.at = ParseInt(value, 0, limits::kMaxNumber);
      fields.Finish();
      break;
    }
    case PrefixOpKind::kClear:
    case PrefixOpKind::kEpoch:
    case PrefixOpKind::kSettle:
    case PrefixOpKind::kObserve:
      break;
  }
  if (MayBeKilled(op.kind)) {
    Fields fields = words.TakeFields("kill");
    TakeKill(&fields, &op);
    fields.Finish();
  }
  words.Finish();
  return op;
}

PrefixSetup ParseSetup(Piece line) {
  Fields fields = SetupFields(line, "prefix", "prefix block=4 tokens=64 data=tokens:1",
                              "block, tokens, entries, layers, hkv, dk, dv, x, k, v, "
                              "quantize_from, window, disk, observe, data");
  PrefixSetup setup;
  Piece value;
  const auto extent = [](Piece piece) { return ParseInt(piece, 1, limits::kMaxExtent); };
  if (fields.TakeIf("block", &value)) setup.block_tokens = extent(value);
  if (fields.TakeIf("tokens", &value)) {
    setup.capacity_tokens = ParseInt(value, 1, limits::kMaxTokens);
  }
  if (fields.TakeIf("entries", &value)) setup.max_entries = ParseInt(value, 0, limits::kMaxTokens);
  if (fields.TakeIf("layers", &value)) setup.layers = extent(value);
  if (fields.TakeIf("hkv", &value)) setup.kv_heads = extent(value);
  if (fields.TakeIf("dk", &value)) setup.k_dim = extent(value);
  setup.v_dim = fields.TakeIf("dv", &value) ? extent(value) : setup.k_dim;
  if (fields.TakeIf("x", &value)) setup.x = ParseVectorType(value);
  if (fields.TakeIf("k", &value)) setup.k = ParseKvFormat(value);
  setup.v = fields.TakeIf("v", &value) ? ParseKvFormat(value) : setup.k;
  if (fields.TakeIf("quantize_from", &value)) {
    setup.quantize_from = ParseInt(value, 0, limits::kMaxTokens);
  }
  if (fields.TakeIf("window", &value)) setup.window = ParseInt(value, 0, limits::kMaxTokens);
  if (fields.TakeIf("disk", &value)) setup.disk = ParseEnum(kYesNo, value);
  if (fields.TakeIf("observe", &value)) setup.observe = ParseEnum(kObserve, value);
  setup.data = ParseDataSource(fields.Take("data"));
  fields.Finish();
  return setup;
}

std::string PrintOpen(const PrefixOp& op) {
  std::string text = fmt::format(" {} {}", RequestName(op.request), Print(op.tokens));
  if (op.all) text += " all";
  if (op.who != PrefixIdentity()) text += " " + Print(op.who);
  if (op.from) text += fmt::format(" from={}", Name(*op.from));
  return text;
}

std::string PrintWrite(const PrefixOp& op) {
  std::string text = fmt::format(" {}", RequestName(op.request));
  if (op.count) text += fmt::format(" {}", *op.count);
  if (!op.tokens.empty()) text += " more=" + Print(op.tokens);
  if (op.wrong != WrongVectors::kNothing)
    text += fmt::format(" wrong={}", NameIn(kWrong, op.wrong));
  return text;
}

std::string PrintFields(const PrefixOp& op) {
  switch (op.kind) {
    case PrefixOpKind::kOpen:
      return PrintOpen(op);
    case PrefixOpKind::kWrite:
      return PrintWrite(op);
    case PrefixOpKind::kRead:
      return fmt::format(" {}", RequestName(op.request));
    case PrefixOpKind::kClose:
      return fmt::format(" {}{}", RequestName(op.request), op.keep ? " keep" : "");
    case PrefixOpKind::kFork:
      return fmt::format(" {} -> {}", RequestName(op.request), RequestName(op.target));
    case PrefixOpKind::kTrimTo:
      return fmt::format(" {} {}", RequestName(op.request), *op.count);
    case PrefixOpKind::kEvict:
      return fmt::format(" {}", *op.count);
    case PrefixOpKind::kSave:
    case PrefixOpKind::kLoad:
      return fmt::format(" s{}", op.key);
    case PrefixOpKind::kRestart: {
      std::string text = op.killed ? " killed" : "";
      if (op.block_tokens) text += fmt::format(" block={}", *op.block_tokens);
      if (op.x) text += fmt::format(" x={}", ShortName(*op.x));
      return text;
    }
    case PrefixOpKind::kDamage:
      return fmt::format(" {}{}", NameIn(kDamages, op.damage),
                         op.at != 0 ? fmt::format(" at={}", op.at) : "");
    case PrefixOpKind::kClear:
    case PrefixOpKind::kEpoch:
    case PrefixOpKind::kSettle:
    case PrefixOpKind::kObserve:
      return "";
  }
  return "";
}

}  // namespace

std::string_view Name(PrefixOpKind kind) { return NameIn(kKinds, kind); }
std::string_view Name(PrefixTier tier) { return NameIn(kTiers, tier); }
std::string_view Name(FileDamage damage) { return NameIn(kDamages, damage); }

char RequestName(int request) { return static_cast<char>('A' + request); }

std::vector<int> NamedRequests(const PrefixOp& op) {
  switch (op.kind) {
    case PrefixOpKind::kOpen:
    case PrefixOpKind::kWrite:
    case PrefixOpKind::kRead:
    case PrefixOpKind::kClose:
    case PrefixOpKind::kTrimTo:
      return {op.request};
    case PrefixOpKind::kFork:
      return {op.request, op.target};
    default:
      return {};
  }
}

bool MayBeKilled(PrefixOpKind kind) {
  return kind == PrefixOpKind::kClose || kind == PrefixOpKind::kEvict ||
         kind == PrefixOpKind::kClear || kind == PrefixOpKind::kEpoch ||
         kind == PrefixOpKind::kSettle || kind == PrefixOpKind::kSave;
}

std::string Print(const PrefixOp& op) {
  std::string text = std::string(Name(op.kind)) + PrintFields(op);
  if (op.kill != 0) text += fmt::format(" kill={}", op.kill);
  return text;
}

std::string Print(const PrefixSetup& setup) {
  const PrefixSetup usual;
  std::string text =
      fmt::format("prefix block={} tokens={}", setup.block_tokens, setup.capacity_tokens);
  const auto add = [&](std::string_view key, int64_t value, int64_t otherwise) {
    if (value != otherwise) text += fmt::format(" {}={}", key, value);
  };
  add("entries", setup.max_entries, usual.max_entries);
  add("layers", setup.layers, usual.layers);
  add("hkv", setup.kv_heads, usual.kv_heads);
  add("dk", setup.k_dim, usual.k_dim);
  add("dv", setup.v_dim, setup.k_dim);
  if (setup.x != usual.x) text += fmt::format(" x={}", ShortName(setup.x));
  if (setup.k) text += " k=" + Print(*setup.k);
  if (setup.v && setup.v != setup.k) text += " v=" + Print(*setup.v);
  add("quantize_from", setup.quantize_from, usual.quantize_from);
  add("window", setup.window, usual.window);
  if (setup.disk) text += " disk=yes";
  if (setup.observe != usual.observe) text += " observe=last";
  return text + " data=" + Print(setup.data);
}

std::string Print(const PrefixCase& c) {
  std::string text = Print(c.setup);
  for (const PrefixOp& op : c.ops) text += "; " + Print(op);
  return text;
}

std::string PrintLines(const PrefixCase& c) {
  std::string text = Print(c.setup) + "\n";
  for (const PrefixOp& op : c.ops) text += Print(op) + "\n";
  return text;
}

PrefixCase ParsePrefixCase(std::string_view text) {
  PrefixCase c;
  ReadOperations(
      text, limits::kMaxOps, [&](Piece piece) { c.setup = ParseSetup(piece); },
      [&](Piece piece) { c.ops.push_back(ParseOp(piece)); });
  ValidatePrefixCase(c);
  return c;
}

}  // namespace kvcheck
