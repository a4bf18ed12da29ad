#include "fuzz/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "fuzz/judge_attend.h"
#include "fuzz/trace_inputs.h"
#include "reference/data/token_rows.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 16;
constexpr std::array<std::string_view, kStateKeys> kKeys = {"s0", "s1", "s2", "s3", "s4",
                                                            "s5", "s6", "s7", "s8", "s9"};

}  // namespace

struct TraceRunner::Slot {
  bool used = false;
  std::unique_ptr<Cache> cache;
  ModelState state;
};

struct TraceRunner::Saved {
  bool used = false;
  ModelState state;
  // As it was saved, once it has been damaged.
  std::optional<StateRecord> original;
};

struct TraceRunner::Names : public TokenNames {
  explicit Names(const VectorTable* t) : table(t) {}
  std::string Describe(int32_t handle) const override {
    const TokenOrigin origin = OriginOf(table->Token(handle));
    return fmt::format("column {} of row {} of operation {}", origin.column, origin.row,
                       origin.operation + 1);
  }
  bool IsKey(int32_t handle) const override { return table->Part(handle) == TokenPart::kKey; }
  KvFormat FormatOf(int32_t handle) const override { return table->Format(handle); }
  const VectorTable* table;
};

TraceRunner::TraceRunner(CacheFactory* factory)
    : factory_(factory),
      capabilities_(factory->GetCapabilities()),
      names_(std::make_unique<Names>(&table_)),
      slots_(kSlots),
      saved_(kStateKeys) {}

TraceRunner::~TraceRunner() = default;

TraceResult TraceRunner::Run(const CacheCase& c, const TraceOptions& options) {
  if (c.setup.data.IsFile()) {
    throw Error(ErrorCode::kMissingData,
                "data=file names recorded tokens; a trace that runs has data=tokens:SEED");
  }
  if (c.setup.data.regime != "tokens") {
    throw Error(ErrorCode::kIllegalCase, "the data of a cache case are tokens:SEED");
  }
  options_ = options;
  case_ = &c;
  result_ = {};
  table_.Start(c.setup, capabilities_.profile, /*looks_for_collisions=*/true);
  for (Slot& slot : slots_) {
    slot.used = false;
    if (slot.cache != nullptr) spares_.push_back(std::move(slot.cache));
  }
  for (Saved& saved : saved_) {
    saved.used = false;
    saved.original.reset();
  }
  store_.Clear();
  const OpResult started = factory_->Start(c.setup);
  if (!started.ok()) {
    result_.outcome = Outcome::kUnsupported;
    result_.reason = fmt::format("the implementation declines the setup: {}", started.message);
    return result_;
  }
  const bool each = options.observe_each || c.setup.observe == Observe::kEach;
  bool fine = true;
  for (index_ = 0; fine && index_ < static_cast<int64_t>(c.ops.size()); ++index_) {
    touched_ = 0;
    fine = Execute(c.ops[static_cast<size_t>(index_)]);
    if (fine && each) fine = options.every_slot ? CompareAll() : CompareTouched();
  }
  if (fine) {
    --index_;
    fine = CompareAll();
  }
  if (result_.outcome == Outcome::kPass && result_.counts.states + result_.counts.refusals == 0) {
    result_.outcome = Outcome::kMistrusted;
    result_.reason = "nothing was judged: no operation found a cache";
  }
  result_.counts.collisions = table_.collisions();
  if (result_.counts.collisions > 0 &&
      (result_.outcome == Outcome::kPass || result_.outcome == Outcome::kFail)) {
    // Neither a pass nor a failure means much where tokens have equal bytes.
    result_.reason = fmt::format(
        "{} pairs of different vectors have equal bytes: choose a larger "
        "head_dim{}{}",
        result_.counts.collisions, result_.reason.empty() ? "" : "; ", result_.reason);
    result_.outcome = Outcome::kMistrusted;
  }
  return result_;
}

bool TraceRunner::Fail(int slot, StepFault fault, std::string message) {
  result_.outcome = Outcome::kFail;
  result_.operation = index_;
  result_.slot = slot;
  if (fault != StepFault::kNone) {
    result_.failure = {};
    result_.failure.fault = fault;
    result_.failure.message = message;
  }
  const std::string op =
      index_ >= 0 ? Print(case_->ops[static_cast<size_t>(index_)]) : std::string("the setup");
  result_.reason = fmt::format("operation {}, {}: {}{}", index_ + 1, op,
                               slot < 0 ? "" : fmt::format("{}: ", SlotName(slot)), message);
  return false;
}

bool TraceRunner::Check(const OpResult& result, std::string_view why, bool* carried_out) {
  *carried_out = result.ok();
  if (result.status == OpStatus::kUnsupported) {
    result_.outcome = Outcome::kUnsupported;
    result_.operation = index_;
    result_.reason = fmt::format("operation {}, {}: {}", index_ + 1,
                                 Print(case_->ops[static_cast<size_t>(index_)]), result.message);
    return false;
  }
  if (result.ok() && !why.empty()) {
    return Fail(-1, StepFault::kAccepted, fmt::format("an illegal call was carried out: {}", why));
  }
  if (!result.ok() && why.empty()) {
    return Fail(-1, StepFault::kRefused,
                fmt::format("a legal call was refused: {}", result.message));
  }
  if (!result.ok()) ++result_.counts.refusals;
  return true;
}

std::unique_ptr<Cache> TraceRunner::TakeSpare() {
  if (spares_.empty()) return nullptr;
  std::unique_ptr<Cache> cache = std::move(spares_.back());
  spares_.pop_back();
  return cache;
}

void TraceRunner::Place(int slot, std::unique_ptr<Cache> cache) {
  Slot& place = slots_[static_cast<size_t>(slot)];
  if (place.cache != nullptr) spares_.push_back(std::move(place.cache));
  place.cache = std::move(cache);
  place.used = true;
  Touch(slot);
}

bool TraceRunner::Execute(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  bool idle = !slot.used;
  switch (op.kind) {
    case CacheOpKind::kNew:
      idle = false;
      break;
    case CacheOpKind::kExtend:
      idle = idle || !slots_[static_cast<size_t>(op.target)].used;
      break;
    case CacheOpKind::kMerge:
      idle = std::any_of(op.operands.begin(), op.operands.end(),
                         [&](int s) { return !slots_[static_cast<size_t>(s)].used; });
      break;
    case CacheOpKind::kLoad:
      idle = false;
      break;
    case CacheOpKind::kDamage:
      idle = !saved_[static_cast<size_t>(op.key)].used;
      break;
    default:
      break;
  }
  if (idle) {
    ++result_.counts.idle;
    return true;
  }
  ++result_.counts.operations;
  ++result_.counts.by_kind[static_cast<size_t>(op.kind)];
  bool carried_out = false;
  ModelState& state = slot.state;
  switch (op.kind) {
    case CacheOpKind::kNew:
      return ExecuteNew(op);
    case CacheOpKind::kAppend:
      return ExecuteAppend(op);
    case CacheOpKind::kPrepare:
      Touch(op.slot);
      if (!Check(slot.cache->Prepare(op.numbers), RefusePrepare(state, op.numbers), &carried_out)) {
        return false;
      }
      if (carried_out) Prepare(op.numbers, &state);
      return true;
    case CacheOpKind::kFinalize:
      Touch(op.slot);
      if (!Check(slot.cache->Finalize(), RefuseFinalize(state), &carried_out)) return false;
      if (carried_out) Finalize(&state);
      return true;
    case CacheOpKind::kTrim:
      return ExecuteTrim(op);
    case CacheOpKind::kFilter:
      Touch(op.slot);
      if (!Check(slot.cache->Filter(op.numbers), RefuseFilter(state, op.numbers), &carried_out)) {
        return false;
      }
      if (carried_out) Filter(op.numbers, &state, &scratch_);
      return true;
    case CacheOpKind::kExtend: {
      Touch(op.slot);
      Touch(op.target);
      const Slot& other = slots_[static_cast<size_t>(op.target)];
      if (!Check(slot.cache->Extend(*other.cache), RefuseExtend(state, other.state),
                 &carried_out)) {
        return false;
      }
      if (carried_out) Extend(other.state, &state);
      if (static_cast<int64_t>(state.rows.size()) > kMaxRows) {
        throw Error(ErrorCode::kUnsupported, "the trace makes a batch of more than 65536 rows");
      }
      return true;
    }
    case CacheOpKind::kMerge:
      return ExecuteMerge(op);
    case CacheOpKind::kExtract:
    case CacheOpKind::kCopy: {
      const bool extracts = op.kind == CacheOpKind::kExtract;
      Touch(op.slot);
      std::unique_ptr<Cache> out = TakeSpare();
      const OpResult result =
          extracts ? slot.cache->Extract(op.count, &out) : slot.cache->CopyTo(&out);
      if (!Check(result, extracts ? RefuseExtract(state, op.count) : RefuseWhilePending(state),
                 &carried_out)) {
        return false;
      }
      if (!carried_out) {
        if (out != nullptr) spares_.push_back(std::move(out));
        return true;
      }
      ModelState made;
      // A target that is the operand itself needs the old state until the new one is made.
      ModelState* to = op.target == op.slot ? &made : &slots_[static_cast<size_t>(op.target)].state;
      if (extracts) {
        Extract(state, op.count, to);
      } else {
        CopyState(state, to);
      }
      if (op.target == op.slot) state = std::move(made);
      Place(op.target, std::move(out));
      return true;
    }
    case CacheOpKind::kToQuantized:
      return ExecuteToQuantized(op);
    case CacheOpKind::kSave:
      return ExecuteSave(op);
    case CacheOpKind::kLoad:
      return ExecuteLoad(op);
    case CacheOpKind::kDamage:
      ExecuteDamage(op);
      return true;
    case CacheOpKind::kAttend:
      return ExecuteAttend(op);
    case CacheOpKind::kDrop:
      slot.used = false;
      spares_.push_back(std::move(slot.cache));
      return true;
  }
  return true;
}

bool TraceRunner::ExecuteNew(const CacheOp& op) {
  const CacheSetup& setup = case_->setup;
  const CacheLayout& layout = op.layout ? *op.layout : setup.layout;
  const KvFormat& k = op.k ? *op.k : setup.k;
  const KvFormat& v = op.v ? *op.v : setup.v;
  if (slots_[static_cast<size_t>(op.slot)].used) Touch(op.slot);
  std::unique_ptr<Cache> out = TakeSpare();
  bool carried_out = false;
  const OpResult result = factory_->New(layout, k, v, op.count, op.numbers, &out);
  if (!Check(result, RefuseNew(setup, layout, k, v, op.count, op.numbers), &carried_out)) {
    return false;
  }
  if (!carried_out) {
    if (out != nullptr) spares_.push_back(std::move(out));
    return true;
  }
  New(layout, k, v, op.count, op.numbers, &slots_[static_cast<size_t>(op.slot)].state);
  Place(op.slot, std::move(out));
  return true;
}

bool TraceRunner::ExecuteAppend(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  ModelState& state = slot.state;
  Touch(op.slot);
  const TokenColumns columns = FillColumns(case_->setup, op, index_, state, &k_, &v_);
  k_before_.assign(k_.begin(), k_.end());
  v_before_.assign(v_.begin(), v_.end());
  bool carried_out = false;
  const OpResult result = slot.cache->Append(columns);
  if (!Check(result, RefuseAppend(case_->setup, state, columns), &carried_out)) return false;
  if (k_ != k_before_ || v_ != v_before_) {
    return Fail(op.slot, StepFault::kInputChanged, "append changed the caller's arrays");
  }
  if (!carried_out) return true;
  for (size_t b = 0; b < state.rows.size(); ++b) {
    const ColumnSplit split = SplitColumns(state, b, op.count);
    StartAppend(&state, b, op.count, split, /*evicts=*/false);
    std::vector<StoredToken>& tokens = state.rows[b].tokens;
    for (int64_t n = split.padding; n < split.padding + split.tokens; ++n) {
      const uint64_t token = TokenId(index_, static_cast<int64_t>(b), n);
      const auto at = [&](const std::byte* base, const VectorStrides& strides) {
        return base + static_cast<int64_t>(b) * strides.row + n * strides.column;
      };
      const int32_t k = table_.Add(TokenPart::kKey, state.k, token,
                                   at(columns.k, columns.k_strides), columns.k_strides.head);
      const int32_t v = table_.Add(TokenPart::kValue, state.v, token,
                                   at(columns.v, columns.v_strides), columns.v_strides.head);
      tokens.push_back({k, v});
    }
    Appended(&state, b, split);
    result_.counts.tokens += split.tokens;
  }
  state.queries = op.count;
  state.no_tail = false;
  return true;
}

bool TraceRunner::ExecuteTrim(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  ModelState& state = slot.state;
  Touch(op.slot);
  // How far it can go back depends on what it still has, which only it can tell. What no future
  // query may see need not be there.
  bool known = true;
  retained_.clear();
  for (size_t b = 0; b < state.rows.size(); ++b) {
    const int64_t offset = state.rows[b].offset;
    const int64_t count = slot.cache->RetainedTokens(static_cast<int64_t>(b));
    TokenRange range = Required(state.layout, offset);
    if (count == StepView::kUnknown) {
      known = false;
    } else {
      const int64_t kept = std::min({state.layout.keep, offset, count});
      range = {kept, std::clamp<int64_t>(offset - (count - kept), 0, offset), offset};
      if (count < Required(state.layout, offset).Count() || count > offset) {
        return Fail(
            op.slot, StepFault::kRetainedMissing,
            fmt::format("row {}: {} tokens are said to be retained of {} seen", b, count, offset));
      }
    }
    retained_.push_back(range);
  }
  bool carried_out = false;
  int64_t trimmed = -1;
  const OpResult result = slot.cache->Trim(op.count, &trimmed);
  if (!Check(result, RefuseTrim(state, op.count), &carried_out)) return false;
  if (!carried_out) return true;
  const int64_t reach = TrimReach(state, op.count, retained_);
  int64_t lowest = reach;
  int64_t highest = reach;
  if (capabilities_.cache_profile.trim == TrimRule::kShorter) lowest = 0;
  if (!known) {
    highest = state.rows.size() == 0 ? 0 : op.count;
    for (const ModelRow& row : state.rows) highest = std::min(highest, row.offset);
  }
  if (trimmed < lowest || trimmed > highest) {
    return Fail(
        op.slot, StepFault::kTrimCount,
        fmt::format("{} tokens are said to be gone; with what was retained it is {}", trimmed,
                    lowest == highest ? fmt::format("{}", reach)
                                      : fmt::format("{} to {}", lowest, highest)));
  }
  Trim(trimmed, &state);
  return true;
}

bool TraceRunner::ExecuteMerge(const CacheOp& op) {
  operands_.clear();
  operand_states_.clear();
  for (int operand : op.operands) {
    const Slot& slot = slots_[static_cast<size_t>(operand)];
    operands_.push_back(slot.cache.get());
    operand_states_.push_back(&slot.state);
    Touch(operand);
  }
  std::unique_ptr<Cache> out = TakeSpare();
  bool carried_out = false;
  const OpResult result = factory_->Merge(operands_, &out);
  if (!Check(result, RefuseMerge(operand_states_), &carried_out)) return false;
  if (!carried_out) {
    if (out != nullptr) spares_.push_back(std::move(out));
    return true;
  }
  Slot& target = slots_[static_cast<size_t>(op.target)];
  if (std::find(op.operands.begin(), op.operands.end(), op.target) != op.operands.end()) {
    ModelState made;
    Merge(operand_states_, &made);
    target.state = std::move(made);
  } else {
    Merge(operand_states_, &target.state);
  }
  Place(op.target, std::move(out));
  return true;
}

bool TraceRunner::ExecuteToQuantized(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  ModelState& state = slot.state;
  Touch(op.slot);
  bool carried_out = false;
  if (!Check(slot.cache->ToQuantized(*op.k, *op.v),
             RefuseToQuantized(case_->setup, state, *op.k, *op.v), &carried_out)) {
    return false;
  }
  if (!carried_out) return true;
  for (ModelRow& row : state.rows) {
    for (StoredToken& token : row.tokens) {
      token = {table_.Convert(token.k, *op.k), table_.Convert(token.v, *op.v)};
    }
  }
  state.k = *op.k;
  state.v = *op.v;
  EndStep(&state);
  return true;
}

bool TraceRunner::ExecuteSave(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  Touch(op.slot);
  const std::string_view why = RefuseWhilePending(slot.state);
  bool carried_out = false;
  if (!Check(slot.cache->Save(&store_, kKeys[static_cast<size_t>(op.key)]), why, &carried_out)) {
    return false;
  }
  if (!carried_out) return true;
  Saved& saved = saved_[static_cast<size_t>(op.key)];
  saved.used = true;
  saved.original.reset();
  CopyState(slot.state, &saved.state);
  return true;
}

bool TraceRunner::ExecuteLoad(const CacheOp& op) {
  const std::string_view key = kKeys[static_cast<size_t>(op.key)];
  Saved& saved = saved_[static_cast<size_t>(op.key)];
  std::string_view why;
  if (!saved.used) {
    why = "nothing is saved under this key";
  } else if (saved.original && !(*store_.Find(key) == *saved.original)) {
    why = "what is saved was damaged";
  }
  if (slots_[static_cast<size_t>(op.target)].used) Touch(op.target);
  std::unique_ptr<Cache> out = TakeSpare();
  bool carried_out = false;
  if (!Check(factory_->Load(store_, key, &out), why, &carried_out)) return false;
  if (!carried_out) {
    if (out != nullptr) spares_.push_back(std::move(out));
    return true;
  }
  CopyState(saved.state, &slots_[static_cast<size_t>(op.target)].state);
  Place(op.target, std::move(out));
  return true;
}

void TraceRunner::ExecuteDamage(const CacheOp& op) {
  StateRecord* record = store_.Find(kKeys[static_cast<size_t>(op.key)]);
  Saved& saved = saved_[static_cast<size_t>(op.key)];
  if (!saved.original) saved.original = *record;
  DamageRecord(op, record);
}

bool TraceRunner::ExecuteAttend(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  const CacheSetup& setup = case_->setup;
  const ModelState& state = slot.state;
  Touch(op.slot);
  const AttendRequest request = FillQueries(setup, op, index_, state, &q_, &sinks_);
  const size_t out_bytes =
      static_cast<size_t>(request.rows * request.query_heads * request.queries * setup.v_dim) *
      SizeInBytes(setup.x);
  q_before_.assign(q_.begin(), q_.end());
  // NaN: an element that is not written fails.
  out_.assign(out_bytes, std::byte{0xff});
  bool carried_out = false;
  if (!Check(slot.cache->Attend(request, out_.data()), RefuseAttend(setup, state, request),
             &carried_out)) {
    return false;
  }
  if (q_ != q_before_) {
    return Fail(op.slot, StepFault::kInputChanged, "attend changed the caller's queries");
  }
  if (!carried_out) return true;
  const AttendJudgement judgement =
      JudgeAttend(setup, state, table_, request, capabilities_.plan, capabilities_.profile, out_);
  result_.counts.outputs += judgement.elements;
  if (judgement.outcome == Outcome::kFail) {
    return Fail(op.slot, StepFault::kAttention, judgement.message);
  }
  if (judgement.outcome == Outcome::kMistrusted && result_.outcome == Outcome::kPass) {
    result_.outcome = Outcome::kMistrusted;
    result_.operation = index_;
    result_.reason = fmt::format("operation {}, {}: {}", index_ + 1, Print(op), judgement.message);
  }
  return true;
}

bool TraceRunner::Compare(int index) {
  Slot& slot = slots_[static_cast<size_t>(index)];
  const ModelState& state = slot.state;
  rows_.resize(state.rows.size());
  size_t queries = 0;
  for (const ModelRow& row : state.rows) queries += static_cast<size_t>(row.query_tokens);
  visible_.resize(queries);
  size_t at = 0;
  const bool ring = state.layout.kind == LayoutKind::kRing;
  for (size_t b = 0; b < state.rows.size(); ++b) {
    const ModelRow& row = state.rows[b];
    ExpectedRow& expected = rows_[b];
    expected.tokens = row.tokens;
    expected.offset = row.offset;
    expected.unfed_padding = row.unfed_padding;
    expected.required = Required(state.layout, row.offset);
    expected.required_before = {};
    expected.newest_visible = {};
    if (row.offset > 0) {
      expected.required_before = Required(state.layout, row.offset - 1);
      expected.newest_visible = Visible(state.layout, row.offset - 1);
    }
    expected.most_retained = ring ? row.most_retained : -1;
    expected.first_query = row.first_query;
    const auto tokens = static_cast<size_t>(row.query_tokens);
    for (size_t i = 0; i < tokens; ++i) {
      visible_[at + i] =
          Visible(state.layout, row.offset - row.query_tokens + static_cast<int64_t>(i));
    }
    expected.visible = {visible_.data() + at, tokens};
    at += tokens;
  }
  const CacheSetup& setup = case_->setup;
  const ExpectedStep expected = {state.layout,  state.k,     state.v,       setup.kv_heads,
                                 setup.k_dim,   setup.v_dim, state.queries, state.pending,
                                 state.no_tail, rows_,       table_.View(), names_.get()};
  if (options_.poison) slot.cache->PoisonUnused();
  StepView view;
  slot.cache->Observe(&view);
  ++result_.counts.states;
  if (comparer_.Compare(expected, view, capabilities_.cache_profile, &result_.failure)) return true;
  return Fail(index, StepFault::kNone, result_.failure.message);
}

bool TraceRunner::CompareTouched() {
  for (int slot = 0; touched_ != 0; ++slot, touched_ >>= 1) {
    if ((touched_ & 1u) != 0 && slots_[static_cast<size_t>(slot)].used && !Compare(slot)) {
      return false;
    }
  }
  return true;
}

bool TraceRunner::CompareAll() {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (slots_[static_cast<size_t>(slot)].used && !Compare(slot)) return false;
  }
  return true;
}

}  // namespace kvcheck
