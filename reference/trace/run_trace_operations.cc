// The operations of a TraceRunner that need more than one call of the cache and one of the model,
// and what becomes of those that an implementation does not have.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reference/cache/close_groups.h"
#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"
#include "reference/trace/judge_attend.h"
#include "reference/trace/run_trace_slots.h"
#include "reference/trace/trace_inputs.h"

namespace kvcheck {

bool TraceRunner::ExecuteNew(const CacheOp& op) {
  const CacheSetup& setup = case_->setup;
  const CacheLayout& layout = op.layout ? *op.layout : setup.layout;
  const KvFormat& k = op.k ? *op.k : setup.k;
  const KvFormat& v = op.v ? *op.v : setup.v;
  if (slots_[static_cast<size_t>(op.slot)].used) Touch(op.slot);
  std::unique_ptr<Cache> out = TakeSpare();
  bool carried_out = false;
  const std::string_view why = Expected(RefuseNew(setup, layout, k, v, op.count, op.numbers));
  const OpResult result = factory_->New(layout, k, v, op.count, op.numbers, &out);
  if (!Check(result, why, &carried_out)) return false;
  if (!carried_out) {
    if (out != nullptr) spares_.push_back(std::move(out));
    return true;
  }
  ModelState& state = slots_[static_cast<size_t>(op.slot)].state;
  New(layout, k, v, op.count, op.numbers, &state);
  state.regroup = capabilities_.cache_profile.regroup;
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
  const std::string_view why = Expected(RefuseAppend(case_->setup, state, columns));
  const OpResult result = slot.cache->Append(columns);
  if (!Check(result, why, &carried_out)) return false;
  if (result.inputs_changed || k_ != k_before_ || v_ != v_before_) {
    return Fail(op.slot, StepFault::kInputChanged, "append changed the caller's arrays");
  }
  // They are the caller's again: a cache that goes on reading them finds something else.
  std::fill(k_.begin(), k_.end(), std::byte{0xff});
  std::fill(v_.begin(), v_.end(), std::byte{0xff});
  if (!carried_out) return true;
  for (size_t b = 0; b < state.rows.size(); ++b) {
    const ColumnSplit split = SplitColumns(state, b, op.count);
    StartAppend(&state, b, op.count, split, /*evicts=*/false);
    std::vector<StoredToken>& tokens = state.rows[b].tokens;
    if (rehearses_) tokens.resize(tokens.size() + static_cast<size_t>(split.tokens));
    for (int64_t n = split.padding; !rehearses_ && n < split.padding + split.tokens; ++n) {
      const uint64_t token = TokenId(index_, static_cast<int64_t>(b), n);
      const auto at = [&](const std::vector<std::byte>& given, const VectorStrides& strides) {
        return given.data() + static_cast<int64_t>(b) * strides.row + n * strides.column;
      };
      const int32_t k = table_.Add(TokenPart::kKey, TokenFormatOf(state.k), token,
                                   at(k_before_, columns.k_strides), columns.k_strides.head);
      const int32_t v = table_.Add(TokenPart::kValue, TokenFormatOf(state.v), token,
                                   at(v_before_, columns.v_strides), columns.v_strides.head);
      tokens.push_back({k, v});
    }
    if (!rehearses_) {
      CloseAppended(state, capabilities_.cache_profile.reads_before, {}, &state.rows[b], &table_);
    }
    Appended(&state, b, split);
    result_.counts.tokens += split.tokens;
  }
  state.queries = op.count;
  state.no_tail = false;
  return true;
}

void TraceRunner::Decline(std::string_view message) {
  const CacheOp& op = case_->ops[static_cast<size_t>(index_)];
  if (result_.counts.unsupported == 0) {
    first_declined_ = index_;
    first_message_ = message;
    first_reason_ = fmt::format("operation {}, {}: {}", index_ + 1, Print(op), message);
  }
  ++result_.counts.unsupported;
  ++result_.counts.unsupported_by_kind[static_cast<size_t>(op.kind)];
}

int64_t TraceRunner::ColumnsUntilFinalize(const CacheOp& prepare) const {
  const ModelState& state = slots_[static_cast<size_t>(prepare.slot)].state;
  if (!RefusePrepare(state, prepare.numbers).empty()) return -1;
  int64_t needed = 0;
  for (size_t b = 0; b < state.rows.size(); ++b) {
    needed = std::max(needed, state.rows[b].unfed_padding + prepare.numbers[b]);
  }
  int64_t columns = 0;
  for (size_t i = static_cast<size_t>(index_) + 1; i < case_->ops.size(); ++i) {
    const CacheOp& op = case_->ops[i];
    const bool on_slot = op.slot == prepare.slot;
    const bool on_target = op.target == prepare.slot;
    switch (op.kind) {
      case CacheOpKind::kAppend:
        if (on_slot && op.wrong == WrongColumns::kNothing) columns += op.count;
        break;
      case CacheOpKind::kFinalize:
        // Too early is refused.
        if (on_slot && columns >= needed) return columns;
        break;
      case CacheOpKind::kNew:
      case CacheOpKind::kDrop:
        if (on_slot) return -1;
        break;
      case CacheOpKind::kMerge:
      case CacheOpKind::kExtract:
      case CacheOpKind::kCopy:
      case CacheOpKind::kLoad:
        // Another cache may come there. A pending cache itself is refused as an operand.
        if (on_target) return -1;
        break;
      default:
        break;
    }
  }
  return -1;
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
    TokenRange range = Required(state.layout, offset);
    // Where the states are looked at in the end alone, all that must be there is taken to be there.
    const bool given = !ObservesEach() && range.Count() == offset;
    const int64_t count = given ? offset : slot.cache->RetainedTokens(static_cast<int64_t>(b));
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
  const std::string_view why = Expected(RefuseTrim(state, op.count));
  const OpResult result = slot.cache->Trim(op.count, &trimmed);
  if (!Check(result, why, &carried_out)) return false;
  if (!carried_out) return true;
  const int64_t reach = TrimReach(state, op.count, retained_);
  if (rehearses_) trimmed = reach;
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
  if (!GroupsReturn(state, trimmed)) {
    return Fail(op.slot, StepFault::kTrimCount,
                fmt::format("{} tokens are said to be gone, which ends inside a group of tokens "
                            "that is coded",
                            trimmed));
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
  const std::string_view why = Expected(RefuseMerge(operand_states_));
  const OpResult result = factory_->Merge(operands_, &out);
  if (!Check(result, why, &carried_out)) return false;
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
  const std::string_view why = Expected(RefuseToQuantized(case_->setup, state, *op.k, *op.v));
  if (!Check(slot.cache->ToQuantized(*op.k, *op.v), why, &carried_out)) return false;
  if (!carried_out) return true;
  for (ModelRow& row : state.rows) {
    for (StoredToken& token : row.tokens) {
      if (rehearses_) break;
      token = {table_.Convert(token.k, TokenFormatOf(*op.k)),
               table_.Convert(token.v, TokenFormatOf(*op.v))};
    }
    if (rehearses_) continue;
    const auto close = [&](TokenPart part, const KvFormat& format) {
      CloseGroups(part, format, state.regroup, 0, {}, &row, &table_);
    };
    if (!(state.k == *op.k)) close(TokenPart::kKey, *op.k);
    if (!(state.v == *op.v)) close(TokenPart::kValue, *op.v);
  }
  state.k = *op.k;
  state.v = *op.v;
  EndStep(&state);
  return true;
}

bool TraceRunner::ExecuteSave(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  Touch(op.slot);
  const std::string_view why = Expected(RefuseWhilePending(slot.state));
  bool carried_out = false;
  if (!Check(slot.cache->Save(store_, kStateKeyNames[static_cast<size_t>(op.key)]), why,
             &carried_out)) {
    return false;
  }
  if (!carried_out) return true;
  Saved& saved = saved_[static_cast<size_t>(op.key)];
  saved.used = true;
  saved.saved_by = index_;
  CopyState(slot.state, &saved.state);
  return true;
}

bool TraceRunner::ExecuteLoad(const CacheOp& op) {
  const std::string_view key = kStateKeyNames[static_cast<size_t>(op.key)];
  Saved& saved = saved_[static_cast<size_t>(op.key)];
  std::string_view why;
  if (!saved.used) {
    why = "nothing is saved under this key";
  } else if (!store_->IsAsPut(key)) {
    why = "what is saved was damaged";
  }
  if (slots_[static_cast<size_t>(op.target)].used) Touch(op.target);
  std::unique_ptr<Cache> out = TakeSpare();
  bool carried_out = false;
  Expected(why);
  if (!Check(factory_->Load(*store_, key, &out), why, &carried_out)) return false;
  if (!carried_out) {
    if (out != nullptr) spares_.push_back(std::move(out));
    return true;
  }
  CopyState(saved.state, &slots_[static_cast<size_t>(op.target)].state);
  Place(op.target, std::move(out));
  slots_[static_cast<size_t>(op.target)].saved_by = saved.saved_by;
  return true;
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
  attended_ = -1;
  // NaN: an element that is not written fails.
  out_.assign(out_bytes, std::byte{0xff});
  bool carried_out = false;
  const std::string_view why = Expected(RefuseAttend(setup, state, request));
  const OpResult result = slot.cache->Attend(request, out_.data());
  if (!Check(result, why, &carried_out)) return false;
  // A wrong output says more: where a library is known to change its queries, it would never show.
  const bool changed = result.inputs_changed || q_ != q_before_;
  const auto check_inputs = [&] {
    return !changed ||
           Fail(op.slot, StepFault::kInputChanged, "attend changed the caller's queries");
  };
  if (!carried_out || rehearses_) return check_inputs();
  std::copy(q_before_.begin(), q_before_.end(), q_.begin());
  if (options_.on_attend) options_.on_attend(out_);
  out_kept_ = out_;
  attended_ = index_;
  const bool states = result.plan != nullptr || result.profile != nullptr;
  const Plan& plan = result.plan != nullptr ? *result.plan : capabilities_.plan;
  AttendJudgement judgement;
  try {
    judgement = JudgeAttend(setup, state, table_, request, plan,
                            result.profile != nullptr ? *result.profile : capabilities_.profile,
                            out_, options_.explains);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIllegalCase || !states) throw;
    return Fail(op.slot, StepFault::kPlan,
                "what the answer states of itself cannot be: " + error.message());
  }
  result_.counts.outputs += judgement.elements;
  if (judgement.outcome == Outcome::kFail) {
    Fail(op.slot, StepFault::kAttention, judgement.message);
    result_.attention = std::move(judgement.output);
    result_.attention_plan = Print(plan);
    return false;
  }
  if (!check_inputs()) return false;
  if (judgement.outcome == Outcome::kMistrusted && result_.outcome == Outcome::kPass) {
    result_.outcome = Outcome::kMistrusted;
    result_.operation = index_;
    result_.reason = fmt::format("operation {}, {}: {}", index_ + 1, Print(op), judgement.message);
  }
  return true;
}

}  // namespace kvcheck
