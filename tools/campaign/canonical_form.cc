#include "tools/campaign/canonical_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace kvcheck {
namespace {

std::string FamilyOf(const CacheLayout& layout) {
  switch (layout.kind) {
    case LayoutKind::kLinear:
      return layout.window > 0 ? "linear:w" : "linear";
    case LayoutKind::kRing:
      return layout.keep > 0 ? "ring:keep" : "ring";
    case LayoutKind::kChunk:
      return "chunk";
  }
  return "";
}

// Types of plain storage are no family (KindOf has one for all of them): what needs one of them is
// rare, and shrinking goes to f32 only where the implementation stores in it.
std::string FamilyOf(const KvFormat& k, const KvFormat& v) {
  const std::string text = KindOf(k);
  const std::string other = KindOf(v);
  return text == other ? text : text + "/" + other;
}

// The block of what is stored in blocks, or several; else the channels of the plainest setup.
int64_t LeastDim(const KvFormat& format) {
  return IsPlain(format) ? 8 : std::max<int64_t>(BlockOf(format), 32);
}

const char* ClassOf(int64_t number) {
  if (number < 0) return "-";
  if (number == 0) return "0";
  return number == 1 ? "1" : "n";
}

// The slots that an operation reads or writes; of `save`, `load` and `damage` the key too, as a
// slot behind all slots.
std::vector<int> Touches(const CacheOp& op) {
  std::vector<int> touched = NamedSlots(op);
  if (op.kind == CacheOpKind::kSave || op.kind == CacheOpKind::kLoad ||
      op.kind == CacheOpKind::kDamage) {
    touched.push_back(kSlots + op.key);
  }
  return touched;
}

constexpr size_t kPlaces = kSlots + kStateKeys;

// Every operation right after what it needs: depth first from the last one, so that the order in
// which operations of different slots are mixed does not count.
std::vector<size_t> OrderOf(const std::vector<CacheOp>& ops) {
  std::vector<std::vector<size_t>> needs(ops.size());
  std::array<int64_t, kPlaces> last;
  last.fill(-1);
  for (size_t i = 0; i < ops.size(); ++i) {
    for (const int place : Touches(ops[i])) {
      int64_t& before = last[static_cast<size_t>(place)];
      if (before >= 0 && before != static_cast<int64_t>(i)) {
        needs[i].push_back(static_cast<size_t>(before));
      }
      before = static_cast<int64_t>(i);
    }
  }
  std::vector<size_t> order;
  std::vector<bool> done(ops.size(), false);
  const auto visit = [&](const auto& self, size_t i) -> void {
    if (done[i]) return;
    done[i] = true;
    for (const size_t need : needs[i]) self(self, need);
    order.push_back(i);
  };
  for (size_t i = ops.size(); i-- > 0;) visit(visit, i);
  return order;
}

// What is known of each cache while a trace is read: enough to tell the class of its operations.
struct SeenSlot {
  int64_t rows = 0;
  std::string family;
  bool batch = false;
};

class TraceReader {
 public:
  explicit TraceReader(const CacheSetup& setup) : setup_(setup) {}

  const SeenSlot& At(int place) const { return known_[static_cast<size_t>(place)]; }

  // How an operation reads, without its slots; goes on to what it leaves behind.
  std::string Read(const CacheOp& op) {
    SeenSlot& slot = known_[static_cast<size_t>(op.slot)];
    SeenSlot& target = known_[static_cast<size_t>(op.target)];
    switch (op.kind) {
      case CacheOpKind::kNew:
        return ReadNew(op, &slot);
      case CacheOpKind::kAppend:
        return std::string(ClassOf(op.count)) + Wrong(op);
      case CacheOpKind::kTrim:
        return ClassOf(op.count);
      case CacheOpKind::kPrepare:
        slot.batch = true;
        return ReadPrepare(op, slot);
      case CacheOpKind::kFilter:
        return ReadFilter(op, &slot);
      case CacheOpKind::kExtend:
        slot.rows += target.rows;
        slot.batch = true;
        return "";
      case CacheOpKind::kMerge: {
        SeenSlot made = op.operands.empty() ? SeenSlot{} : At(op.operands[0]);
        made.rows = 0;
        for (const int operand : op.operands) made.rows += At(operand).rows;
        made.batch = true;
        target = made;
        return "";
      }
      case CacheOpKind::kExtract: {
        const char* place = op.count < 0 || op.count >= slot.rows ? "outside" : "";
        SeenSlot made = slot;
        made.rows = 1;
        made.batch = false;
        target = made;
        return place;
      }
      case CacheOpKind::kCopy:
        target = SeenSlot(slot);
        return "";
      case CacheOpKind::kSave:
        known_[static_cast<size_t>(kSlots) + static_cast<size_t>(op.key)] = slot;
        return "";
      case CacheOpKind::kLoad:
        target = At(kSlots + op.key);
        return "";
      case CacheOpKind::kDamage:
        return std::string(Name(op.damage));
      case CacheOpKind::kToQuantized:
        slot.family = FamilyOf(op.k.value_or(setup_.k), op.v.value_or(setup_.v));
        return slot.family;
      case CacheOpKind::kAttend:
        return std::string(op.window ? "window" : "") + (op.sinks ? " sinks" : "") +
               (op.scale ? " scale" : "");
      default:
        return "";
    }
  }

 private:
  // A switch, so that a new kind without a name does not compile.
  static const char* Wrong(const CacheOp& op) {
    switch (op.wrong) {
      case WrongColumns::kNothing:
        return "";
      case WrongColumns::kRows:
        return " rows";
      case WrongColumns::kHeads:
        return " heads";
      case WrongColumns::kKDim:
        return " k_dim";
      case WrongColumns::kVDim:
        return " v_dim";
      case WrongColumns::kType:
        return " type";
      case WrongColumns::kFewerRows:
        return " fewer_rows";
      case WrongColumns::kFewerHeads:
        return " fewer_heads";
      case WrongColumns::kFewerColumns:
        return " fewer_v";
    }
    return "";
  }

  std::string ReadNew(const CacheOp& op, SeenSlot* slot) {
    const CacheLayout& layout = op.layout ? *op.layout : setup_.layout;
    const KvFormat& k = op.k ? *op.k : setup_.k;
    const KvFormat& v = op.v ? *op.v : setup_.v;
    const bool padded = std::any_of(op.numbers.begin(), op.numbers.end(),
                                    [](int64_t padding) { return padding != 0; });
    slot->rows = op.count;
    slot->batch = op.count != 1 || padded;
    slot->family = FamilyOf(layout) + " " + FamilyOf(k, v);
    std::string text = slot->family;
    if (op.count != 1) text += fmt::format(" rows={}", ClassOf(op.count));
    if (padded) text += " padded";
    if (!IsLegal(layout)) text += " illegal";
    return text;
  }

  static std::string ReadPrepare(const CacheOp& op, const SeenSlot& slot) {
    std::string text;
    if (static_cast<int64_t>(op.numbers.size()) != slot.rows) text += "wrong ";
    const auto [least, most] = std::minmax_element(op.numbers.begin(), op.numbers.end());
    if (op.numbers.empty()) return text + "none";
    if (*least < 0) text += "negative ";
    return text + (*least == *most ? "even" : "ragged");
  }

  static std::string ReadFilter(const CacheOp& op, SeenSlot* slot) {
    std::string text;
    std::set<int64_t> taken;
    bool in_order = true;
    bool outside = false;
    for (size_t i = 0; i < op.numbers.size(); ++i) {
      in_order = in_order && (i == 0 || op.numbers[i - 1] < op.numbers[i]);
      outside = outside || op.numbers[i] < 0 || op.numbers[i] >= slot->rows;
      taken.insert(op.numbers[i]);
    }
    if (op.numbers.empty()) text = "none";
    if (outside) text = "outside";
    if (taken.size() < op.numbers.size()) {
      text += " again";
    } else if (!in_order) {
      text += " turned";
    } else if (!outside && !taken.empty() && static_cast<int64_t>(taken.size()) == slot->rows) {
      text += "all";
    }
    if (!outside) slot->rows = std::ssize(op.numbers);
    slot->batch = true;
    return text;
  }

  const CacheSetup& setup_;
  std::array<SeenSlot, kPlaces> known_{};
};

std::string FormOf(const CacheCase& c) {
  const CacheSetup& setup = c.setup;
  std::vector<std::string> parts;
  bool attends = false;
  for (const CacheOp& op : c.ops) attends = attends || op.kind == CacheOpKind::kAttend;
  std::string flags;
  if (setup.kv_heads > 1) flags += " heads";
  if (attends && setup.query_heads > setup.kv_heads) flags += " grouped";
  // Shrinking stops at the least: fewer channels are no plainer.
  const int64_t least = std::max(LeastDim(setup.k), LeastDim(setup.v));
  const int64_t k_dim = std::max(setup.k_dim, least);
  const int64_t v_dim = std::max(setup.v_dim, least);
  if (k_dim != v_dim) {
    flags += " k/v";
  } else if (k_dim > least) {
    flags += " wide";
  }
  // Slots and keys are named in the order in which they are used.
  std::array<int, kPlaces> names;
  names.fill(-1);
  int slots = 0;
  int keys = 0;
  TraceReader reader(setup);
  std::string text;
  for (const size_t i : OrderOf(c.ops)) {
    const CacheOp& op = c.ops[i];
    text += fmt::format("{}{}", text.empty() ? "" : "; ", Name(op.kind));
    for (const int place : Touches(op)) {
      int& name = names[static_cast<size_t>(place)];
      if (name < 0) name = place < kSlots ? slots++ : keys++;
      text += place < kSlots ? fmt::format(" {}", SlotName(name)) : fmt::format(" s{}", name);
    }
    const std::string read = reader.Read(op);
    if (!read.empty()) text += read.starts_with(' ') ? read : " " + read;
  }
  return flags.empty() ? text : flags.substr(1) + "; " + text;
}

std::string FormOf(const AttentionCase& c) {
  std::string text = fmt::format("attention q={} t={}", ClassOf(c.query_len), ClassOf(c.kv_len));
  if (c.batch > 1) text += " batch";
  if (c.kv_heads > 1) text += " heads";
  if (c.query_heads > c.kv_heads) text += " grouped";
  if (c.k_dim != c.v_dim) text += " k/v";
  text += " " + FamilyOf(c.k, c.v);
  const MaskSpec& mask = c.mask;
  if (mask.causal == CausalAlignment::kBottomRight) text += " causal";
  if (mask.causal == CausalAlignment::kTopLeft) text += " top_left";
  if (mask.window) text += " window";
  if (!mask.left_padding.empty()) text += " left_pad";
  if (mask.array != MaskArrayKind::kNone) {
    text += fmt::format(" {}:{}", mask.array == MaskArrayKind::kBoolean ? "bool" : "additive",
                        Name(mask.axes));
  }
  if (c.softcap) text += " softcap";
  if (c.sinks) text += " sinks";
  if (c.alibi) text += " alibi";
  if (c.lse != LseKind::kNone) text += c.lse_type ? " lse in a low type" : " lse";
  if (c.against_original) text += " original";
  return text;
}

std::string FormOf(const CodecCase& c) {
  return fmt::format("codec {} {} rows={}", Name(c.direction), KindOf(c.format), ClassOf(c.rows));
}

std::string FormOf(const TensorCase&) { return "tensor"; }

// Requests in the order in which they are named; of tokens, whether a prompt begins as an earlier
// one does, and of identities, which one of the history it is.
std::string FormOf(const PrefixCase& c) {
  const PrefixSetup& setup = c.setup;
  std::string text = setup.k ? "coded" : "plain";
  if (setup.window > 0) text += " window";
  if (setup.disk) text += " disk";
  std::array<int, kRequests> names;
  names.fill(-1);
  int requests = 0;
  std::vector<PrefixIdentity> identities;
  std::vector<TokenRuns> prompts;
  for (const PrefixOp& op : c.ops) {
    text += fmt::format("; {}", Name(op.kind));
    for (const int request : NamedRequests(op)) {
      int& name = names[static_cast<size_t>(request)];
      if (name < 0) name = requests++;
      text += fmt::format(" {}", RequestName(name));
    }
    if (op.kind == PrefixOpKind::kOpen) {
      const auto who = std::find(identities.begin(), identities.end(), op.who);
      text += fmt::format(" i{}", who - identities.begin());
      if (who == identities.end()) identities.push_back(op.who);
      const bool again = std::any_of(prompts.begin(), prompts.end(), [&](const TokenRuns& other) {
        return other.front() == op.tokens.front();
      });
      text += again ? " again" : "";
      prompts.push_back(op.tokens);
    }
    if (op.keep) text += " keep";
    if (op.kill != 0) text += " kill";
    if (op.kind == PrefixOpKind::kDamage) text += fmt::format(" {}", Name(op.damage));
  }
  return text;
}

CaseTraits TraitsOfKind(const AttentionCase& c, int64_t) { return {FamilyOf(c.k, c.v), 0}; }
CaseTraits TraitsOfKind(const CodecCase& c, int64_t) { return {KindOf(c.format), 0}; }
CaseTraits TraitsOfKind(const TensorCase&, int64_t) { return {}; }
CaseTraits TraitsOfKind(const PrefixCase& c, int64_t) {
  CaseTraits traits;
  traits.group = c.setup.k ? "coded" : "plain";
  for (const PrefixOp& op : c.ops) traits.kinds |= 1u << static_cast<int>(op.kind);
  return traits;
}

CaseTraits TraitsOfKind(const CacheCase& c, int64_t step) {
  CaseTraits traits;
  const auto count = static_cast<int64_t>(c.ops.size());
  const int64_t end = step < 0 ? count : std::min(count, step + 1);
  TraceReader reader(c.setup);
  for (int64_t i = 0; i < end; ++i) {
    const CacheOp& op = c.ops[static_cast<size_t>(i)];
    reader.Read(op);
    traits.kinds |= 1u << static_cast<int>(op.kind);
    if (i + 1 < end) continue;
    const std::vector<int> touched = Touches(op);
    if (touched.empty()) continue;
    const SeenSlot& known = reader.At(touched.front());
    traits.group = known.family + (known.batch ? " batch" : "");
  }
  return traits;
}

}  // namespace

std::string CanonicalForm(const Case& c) {
  return std::visit([](const auto& each) { return FormOf(each); }, c);
}

CaseTraits TraitsOf(const Case& c, int64_t step) {
  return std::visit([step](const auto& each) { return TraitsOfKind(each, step); }, c);
}

bool MayShrinkTo(const CaseTraits& drawn, const CaseTraits& shrunk) {
  return drawn.group == shrunk.group && (shrunk.kinds & ~drawn.kinds) == 0;
}

}  // namespace kvcheck
