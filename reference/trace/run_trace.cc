#include "reference/trace/run_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "reference/data/token_rows.h"
#include "reference/spec/error.h"
#include "reference/trace/run_trace_slots.h"
#include "reference/trace/trace_shadow.h"

namespace kvcheck {
namespace {

constexpr int64_t kMaxRows = int64_t{1} << 16;

std::string_view RefusalOf(Misfit misfit) {
  switch (misfit) {
    case Misfit::kNone:
      return "a legal call was refused";
    case Misfit::kMask:
      return "the call returned a mask that does not fit the K and V that it returned";
    case Misfit::kKeysAndValues:
      return "the call returned K and V that do not fit each other";
  }
  KVCHECK_CHECK(false, "no kind of misfit");
}

}  // namespace

TraceRunner::TraceRunner(CacheFactory* factory, TraceStore* store)
    : factory_(factory),
      capabilities_(factory->GetCapabilities()),
      names_(std::make_unique<Names>(&table_)),
      slots_(kSlots),
      saved_(kStateKeys),
      store_(store) {
  if (store_ == nullptr) store_ = factory->OwnStore();
  if (store_ == nullptr) store_ = &memory_;
}

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
  const bool watched = options.on_state != nullptr || options.on_attend != nullptr;
  if (!options.send_ahead || watched || !factory_->BeginRehearsal()) {
    RunOperations();
    return result_;
  }
  Rehearse();
  std::exception_ptr loss;
  try {
    RunOperations();
    if (factory_->ForgetRehearsed()) return result_;
  } catch (const RehearsedOtherwise& otherwise) {
    loss = otherwise.loss();
  } catch (...) {
    factory_->ForgetRehearsed();
    throw;
  }
  // One call at a time it is clear which one is to blame.
  RunOperations();
  if (loss != nullptr && result_.outcome == Outcome::kPass) std::rethrow_exception(loss);
  return result_;
}

void TraceRunner::Rehearse() {
  rehearses_ = takes_more_ = true;
  const auto end = [this] {
    rehearses_ = false;
    factory_->EndRehearsal();
  };
  try {
    RunOperations();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
    // It comes again where it counts.
  } catch (...) {
    end();
    throw;
  }
  end();
}

bool TraceRunner::IsLarge() const {
  constexpr int64_t kMostBytes = 1 << 18;
  const CacheSetup& setup = case_->setup;
  const int64_t token = setup.kv_heads * (setup.k_dim + setup.v_dim) * 4;
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    const auto rows = static_cast<int64_t>(slot.state.rows.size());
    return slot.used && rows * LongestRow(slot.state) > kMostBytes / token;
  });
}

void TraceRunner::RunOperations() {
  const CacheCase& c = *case_;
  result_ = {};
  table_.Start(c.setup, capabilities_.profile, /*looks_for_collisions=*/true);
  attended_ = -1;
  for (Slot& slot : slots_) {
    slot.used = false;
    slot.made_by = slot.saved_by = -1;
    if (slot.cache != nullptr) spares_.push_back(std::move(slot.cache));
  }
  for (Saved& saved : saved_) {
    saved.used = false;
    saved.saved_by = -1;  // the operations that it counted are of another trace
  }
  store_->Clear();
  probes_.Start(c.setup);
  Expected("");
  const OpResult started = factory_->Start(c.setup);
  if (!started.ok()) {
    result_.outcome = Outcome::kUnsupported;
    result_.declined = started.message;
    result_.reason = fmt::format("the implementation declines the setup: {}", started.message);
    return;
  }
  const bool each = ObservesEach();
  const ObserveHint after_each = !each                 ? ObserveHint::kNothing
                                 : options_.every_slot ? ObserveHint::kEverySlot
                                                       : ObserveHint::kTouched;
  bool fine = true;
  const auto end = static_cast<int64_t>(c.ops.size());
  for (index_ = 0; fine && index_ < end; ++index_) {
    touched_ = 0;
    if (index_ == 0) factory_->ObserveAfter(after_each);
    if (each && index_ == end - 1) factory_->ObserveAfter(ObserveHint::kEverySlot);
    if (options_.on_operation && !rehearses_) options_.on_operation(index_);
    fine = Execute(c.ops[static_cast<size_t>(index_)]) && ResultsStand();
    if (fine && each) fine = options_.every_slot ? CompareAll() : CompareTouched();
    if (rehearses_ && (!takes_more_ || IsLarge())) return;
  }
  if (fine) {
    --index_;
    CompareAll();
  }
  if (!rehearses_) Conclude();
}

void TraceRunner::Conclude() {
  const TraceCounts& counts = result_.counts;
  // Without a token there was nothing to judge of a cache that declines: none could be made, or it
  // stayed empty. That a load of nothing was refused is no answer of an implementation that makes
  // no caches.
  const bool declined = counts.unsupported > 0 && counts.with_tokens + counts.outputs == 0;
  const bool idle = counts.states + counts.refusals == 0;
  // Attention was asked for and answered, and no token was ever there. (That padding alone shows no
  // token is something: of states that were compared.)
  const bool padding = counts.by_kind[static_cast<size_t>(CacheOpKind::kAttend)] > 0 &&
                       counts.outputs == 0 && counts.tokens == 0 && counts.refusals == 0;
  const bool hidden = counts.with_tokens > 0 && counts.shown + counts.outputs == 0;
  if (result_.outcome == Outcome::kPass && (declined || idle)) {
    result_.outcome = declined ? Outcome::kUnsupported : Outcome::kMistrusted;
    result_.operation = declined ? first_declined_ : -1;
    if (declined) result_.declined = first_message_;
    result_.reason = declined ? first_reason_ : "nothing was judged: no operation found a cache";
  } else if (result_.outcome == Outcome::kPass && padding) {
    result_.outcome = Outcome::kMistrusted;
    result_.by_trace = true;
    result_.reason =
        "no token was ever there: the attention that was asked for is of padding, and nothing of "
        "it "
        "was compared";
  } else if (result_.outcome == Outcome::kPass && hidden) {
    result_.outcome = Outcome::kMistrusted;
    result_.by_trace = counts.between == counts.with_tokens;
    result_.reason = fmt::format(
        "tokens were never judged: none of {} states shows which it retains or which its queries "
        "see, and no attention was answered{}",
        counts.with_tokens,
        result_.by_trace ? "; each is that of a prepared prefill, with no append to ask about"
                         : "");
  }
  result_.counts.collisions = table_.collisions();
  result_.probes = probes_.counts();
  if (result_.counts.collisions > 0 &&
      (result_.outcome == Outcome::kPass || result_.outcome == Outcome::kFail)) {
    // Neither a pass nor a failure means much where tokens have equal bytes.
    result_.reason = fmt::format(
        "{} pairs of different vectors have equal bytes: choose a larger "
        "head_dim{}{}",
        result_.counts.collisions, result_.reason.empty() ? "" : "; ", result_.reason);
    result_.outcome = Outcome::kMistrusted;
  }
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
  result_.reason = fmt::format("operation {}, {}: {}{}{}", index_ + 1, op,
                               slot < 0 ? "" : fmt::format("{}: ", SlotName(slot)), message,
                               OriginOfState(slot));
  return false;
}

std::string TraceRunner::OriginOfState(int slot) const {
  if (slot < 0 || index_ < 0) return "";
  const CacheOp& op = case_->ops[static_cast<size_t>(index_)];
  const auto origin = [&](std::string_view what, int64_t by) {
    return by < 0 || by >= std::ssize(case_->ops)
               ? ""
               : fmt::format("; {} by operation {}, {}", what, by + 1,
                             Print(case_->ops[static_cast<size_t>(by)]));
  };
  const Slot& from = slots_[static_cast<size_t>(slot)];
  // A load that was refused or declined has not made what is there.
  if (op.kind == CacheOpKind::kLoad && slot == op.target && from.made_by == index_) {
    return origin("it was saved", saved_[static_cast<size_t>(op.key)].saved_by);
  }
  const std::vector<int> named = NamedSlots(op);
  if (std::find(named.begin(), named.end(), slot) != named.end()) return "";
  return origin("this operation does not name it; it was made", from.made_by) +
         origin("what was loaded was saved", from.saved_by);
}

bool TraceRunner::Check(const OpResult& result, std::string_view why, bool* carried_out) {
  *carried_out = result.ok();
  if (result.status == OpStatus::kUnsupported) {
    // Skipped: the model does nothing either, and that nothing has changed is judged.
    Decline(result.message);
    return true;
  }
  if (result.ok() && !why.empty()) {
    return Fail(-1, StepFault::kAccepted, fmt::format("an illegal call was carried out: {}", why));
  }
  if (!result.ok() && why.empty()) {
    return Fail(-1, StepFault::kRefused,
                fmt::format("{}: {}", RefusalOf(result.misfit), result.message));
  }
  if (result.results_changed) {
    return Fail(-1, StepFault::kResultChanged,
                "arrays that an earlier call returned have changed: views of live memory");
  }
  if (!result.ok()) ++result_.counts.refusals;
  return true;
}

bool TraceRunner::ResultsStand() {
  if (attended_ < 0 || out_ == out_kept_) return true;
  return Fail(-1, StepFault::kResultChanged,
              fmt::format("what operation {}, {}, returned has changed since", attended_ + 1,
                          Print(case_->ops[static_cast<size_t>(attended_)])));
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
  place.made_by = index_;
  place.saved_by = -1;
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
  const int64_t refusals = result_.counts.refusals;
  const int64_t unsupported = result_.counts.unsupported;
  ProbeBefore(op);
  const bool fine = Perform(op);
  if (result_.counts.unsupported > unsupported) return fine;
  ++result_.counts.operations;
  ++result_.counts.by_kind[static_cast<size_t>(op.kind)];
  if (!fine) return false;
  ProbeAfter(op, result_.counts.refusals == refusals);
  return true;
}

void TraceRunner::ProbeBefore(const CacheOp& op) {
  const auto state = [&](int slot) -> const ModelState* {
    const Slot& s = slots_[static_cast<size_t>(slot)];
    return s.used ? &s.state : nullptr;
  };
  operand_states_.clear();
  switch (op.kind) {
    case CacheOpKind::kMerge:
      for (int operand : op.operands) operand_states_.push_back(state(operand));
      return probes_.Before(op, nullptr, nullptr, operand_states_, false);
    case CacheOpKind::kLoad:
      return probes_.Before(op, nullptr, nullptr, {},
                            saved_[static_cast<size_t>(op.key)].used &&
                                !store_->IsAsPut(kStateKeyNames[static_cast<size_t>(op.key)]));
    case CacheOpKind::kDamage:
      return probes_.Before(op, nullptr, nullptr, {}, false);
    default:
      return probes_.Before(op, state(op.slot),
                            op.kind == CacheOpKind::kExtend ? state(op.target) : nullptr, {},
                            false);
  }
}

void TraceRunner::ProbeAfter(const CacheOp& op, bool carried_out) {
  const bool fills = op.kind == CacheOpKind::kMerge || op.kind == CacheOpKind::kExtract ||
                     op.kind == CacheOpKind::kCopy || op.kind == CacheOpKind::kLoad;
  probes_.After(op, carried_out, &slots_[static_cast<size_t>(fills ? op.target : op.slot)].state);
}

bool TraceRunner::Perform(const CacheOp& op) {
  Slot& slot = slots_[static_cast<size_t>(op.slot)];
  bool carried_out = false;
  std::string_view why;
  ModelState& state = slot.state;
  switch (op.kind) {
    case CacheOpKind::kNew:
      return ExecuteNew(op);
    case CacheOpKind::kAppend:
      return ExecuteAppend(op);
    case CacheOpKind::kPrepare:
      Touch(op.slot);
      why = Expected(RefusePrepare(state, op.numbers));
      if (!Check(slot.cache->Prepare(op.numbers, ColumnsUntilFinalize(op)), why, &carried_out)) {
        return false;
      }
      if (carried_out) Prepare(op.numbers, &state);
      return true;
    case CacheOpKind::kFinalize:
      Touch(op.slot);
      why = Expected(RefuseFinalize(state));
      if (!Check(slot.cache->Finalize(), why, &carried_out)) return false;
      if (carried_out) Finalize(&state);
      return true;
    case CacheOpKind::kTrim:
      return ExecuteTrim(op);
    case CacheOpKind::kFilter:
      Touch(op.slot);
      why = Expected(RefuseFilter(state, op.numbers));
      if (!Check(slot.cache->Filter(op.numbers), why, &carried_out)) return false;
      if (carried_out) Filter(op.numbers, &state, &scratch_);
      return true;
    case CacheOpKind::kExtend: {
      Touch(op.slot);
      Touch(op.target);
      const Slot& other = slots_[static_cast<size_t>(op.target)];
      why = Expected(RefuseExtend(state, other.state));
      if (!Check(slot.cache->Extend(*other.cache), why, &carried_out)) return false;
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
      why = Expected(extracts ? RefuseExtract(state, op.count) : RefuseWhilePending(state));
      const OpResult result =
          extracts ? slot.cache->Extract(op.count, &out) : slot.cache->CopyTo(&out);
      if (!Check(result, why, &carried_out)) return false;
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
      why = Expected("");
      return Check(store_->Damage(kStateKeyNames[static_cast<size_t>(op.key)], op), why,
                   &carried_out);
    case CacheOpKind::kAttend:
      return ExecuteAttend(op);
    case CacheOpKind::kDrop:
      slot.used = false;
      spares_.push_back(std::move(slot.cache));
      return true;
  }
  return true;
}

}  // namespace kvcheck
