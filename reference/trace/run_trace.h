// Runs a trace on an implementation beside the model of the contract, and judges every operation:
// its answer, and the state of every cache that it touched. Built for millions of short traces: a
// runner keeps its memory from case to case, and nothing allocates once it has warmed up.

#ifndef REFERENCE_TRACE_RUN_TRACE_H_
#define REFERENCE_TRACE_RUN_TRACE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reference/cache/model_state.h"
#include "reference/cache/vector_table.h"
#include "reference/spec/cache_implementation.h"
#include "reference/spec/trace.h"
#include "reference/trace/probes.h"
#include "reference/trace/step_compare.h"
#include "reference/trace/trace_result.h"
#include "reference/trace/trace_store.h"

namespace kvcheck {

struct TraceOptions {
  // Judge every slot after every operation, not only those that it touched: what was changed by
  // aliasing is found where it happens instead of at the end.
  bool every_slot = false;
  // Judge the state after every operation, whatever the case says.
  bool observe_each = false;
  bool poison = true;  // overwrite what implementations hold unused
  // Rehearse the case, where the implementation makes use of it: another process is then sent all
  // calls before it has answered the first. The result is the same.
  bool send_ahead = true;
  // A failing attend says what its errors may come from, which costs many times its judgement.
  bool explains = true;
  // Told the index of each operation before it begins: in a supervised worker, a sign of life and
  // what a crash is blamed on.
  std::function<void(int64_t)> on_operation;
  // Told every state before it is judged, and every output of attention: what whoever looks at
  // tensors alone would see.
  std::function<void(const StepView&)> on_state;
  std::function<void(std::span<const std::byte> out)> on_attend;
};

class TraceRunner {
 public:
  // factory, store: outlive the runner. store: where traces save; null: where the
  // factory does, or in memory.
  explicit TraceRunner(CacheFactory* factory, TraceStore* store = nullptr);
  ~TraceRunner();

  // Errors: kMissingData for data=file, kIllegalCase for another regime than `tokens`; kUnsupported
  // for a trace that grows beyond what one case may hold (2^16 rows, 2^22 vectors in one append).
  TraceResult Run(const CacheCase& c, const TraceOptions& options = {});

 private:
  struct Slot;
  struct Saved;
  struct Names;

  // The case with all its answers, into result_.
  void RunOperations();
  void Rehearse();
  // Whether a case has grown so large in a rehearsal that many states of it should not be under
  // way.
  bool IsLarge() const;
  void Conclude();
  bool ObservesEach() const {
    return options_.observe_each || case_->setup.observe == Observe::kEach;
  }
  // Of a call that is illegal for this reason, or legal (""): told ahead in a rehearsal.
  std::string_view Expected(std::string_view why) {
    if (rehearses_) takes_more_ = factory_->Expect(why.empty()) && takes_more_;
    return why;
  }
  bool Execute(const CacheOp& op);
  // The call itself, of an operation that finds what it names.
  bool Perform(const CacheOp& op);
  void ProbeBefore(const CacheOp& op);
  void ProbeAfter(const CacheOp& op, bool carried_out);
  bool ExecuteNew(const CacheOp& op);
  bool ExecuteAppend(const CacheOp& op);
  bool ExecuteTrim(const CacheOp& op);
  bool ExecuteMerge(const CacheOp& op);
  bool ExecuteToQuantized(const CacheOp& op);
  bool ExecuteSave(const CacheOp& op);
  bool ExecuteLoad(const CacheOp& op);
  bool ExecuteAttend(const CacheOp& op);
  // False when the answer of a call is not what the contract says (`why` it is illegal, or ""), or
  // when the trace cannot go on. *carried_out: the model does the same now. What is unsupported is
  // counted, and skipped.
  bool Check(const OpResult& result, std::string_view why, bool* carried_out);
  void Decline(std::string_view message);
  // Columns that the trace feeds to the slot of a `prepare` until it is finalized; -1: it never is.
  int64_t ColumnsUntilFinalize(const CacheOp& op) const;
  bool ResultsStand();
  bool Compare(int slot);
  bool CompareTouched();
  bool CompareAll();
  bool Fail(int slot, StepFault fault, std::string message);
  // ", made by operation 2, copy A -> B": where the wrong state of a slot comes from that the
  // current operation does not name, or that it has loaded; "" otherwise.
  std::string OriginOfState(int slot) const;
  std::unique_ptr<Cache> TakeSpare();
  void Place(int slot, std::unique_ptr<Cache> cache);
  void Touch(int slot) { touched_ |= 1u << slot; }

  CacheFactory* factory_;
  CacheCapabilities capabilities_;
  TraceOptions options_;
  const CacheCase* case_ = nullptr;
  int64_t index_ = 0;  // of the current operation
  bool rehearses_ = false;
  bool takes_more_ = true;  // calls of a rehearsal
  TraceResult result_;
  int64_t first_declined_ = -1;  // the operation that was unsupported first, and why
  std::string first_reason_, first_message_;
  VectorTable table_;
  std::unique_ptr<Names> names_;
  StepComparer comparer_;
  ProbeCounter probes_;
  std::vector<Slot> slots_;
  std::vector<Saved> saved_;
  MemoryTraceStore memory_;
  TraceStore* store_;
  std::vector<std::unique_ptr<Cache>> spares_;
  unsigned touched_ = 0;
  // Buffers.
  ModelRows scratch_;
  std::vector<std::byte> k_, v_, k_before_, v_before_, q_, q_before_, out_;
  // What the last attend answered, and its operation: results do not change later. -1: none.
  std::vector<std::byte> out_kept_;
  int64_t attended_ = -1;
  std::vector<float> sinks_;
  std::vector<ExpectedRow> rows_;
  std::vector<TokenRange> visible_, retained_;
  std::vector<const Cache*> operands_;
  std::vector<const ModelState*> operand_states_;
  std::vector<Cache*> observed_;
};

}  // namespace kvcheck

#endif  // REFERENCE_TRACE_RUN_TRACE_H_
