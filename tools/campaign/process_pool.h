// Numbered items, evaluated in batches by supervised children. A crash or a hang costs one item: it
// becomes the outcome of exactly the item that was in flight, the worker is replaced and the rest
// of its batch is evaluated again. Answers are delivered in the order of the items, so that nothing
// that is added up from them depends on the number of workers or on the size of batches.
//
// An item that was lost is tried once more, alone in a fresh worker. Whatever that says, it stays
// lost: a case that goes down only after others have run points to memory that these damaged, which
// is no less a fault; the reason then says so.

#ifndef TOOLS_CAMPAIGN_PROCESS_POOL_H_
#define TOOLS_CAMPAIGN_PROCESS_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "reference/judge/verdict.h"
#include "tools/process/item_mark.h"
#include "tools/process/supervised_child.h"

namespace kvcheck {

struct Batch {
  int64_t first = 0;
  int64_t count = 0;
  int64_t end() const { return first + count; }
  bool operator==(const Batch&) const = default;
};

// In a worker: the answer for a batch. What it throws is a crash of the item in flight.
using EvaluateBatch = std::function<Message(const Batch&, ItemMark&)>;

struct BatchAnswer {
  Batch batch;
  Message answer;  // of EvaluateBatch; empty where `outcome` says how the one item was lost
  Outcome outcome = Outcome::kPass;  // kCrashed, kTimedOut
  int64_t step = -1;                 // of a lost item: the step in flight; -1: none had begun
  std::string reason;                // "crashed (signal 11, Segmentation fault)"

  bool IsLost() const { return outcome != Outcome::kPass; }
};

enum class PoolState : uint8_t {
  kGoOn,
  kFinish,  // begin no further batch
  kStop,    // drop what is in flight
};

// For ChildLimits::address_space_bytes of workers: a runaway allocation is a crash of one case, not
// the end of the machine.
inline constexpr int64_t kWorkerBytes = int64_t{8} << 30;

struct PoolOptions {
  int workers = 1;
  ChildLimits limits;
  int64_t first = 0;   // those before were evaluated in an earlier run
  int64_t items = -1;  // items are first .. items - 1; -1: without end
  // Batches grow from 1 to this size, so that a short run is spread over all workers too.
  int64_t largest_batch = 1;
};

class ProcessPool {
 public:
  // make_evaluator: called once in each worker.
  ProcessPool(const PoolOptions& options, std::function<EvaluateBatch()> make_evaluator);
  ~ProcessPool();
  ProcessPool(const ProcessPool&) = delete;
  ProcessPool& operator=(const ProcessPool&) = delete;

  // Called at least every 50 ms while workers run.
  std::function<PoolState()> state;
  // An answer that is none (a worker's memory may be damaged): the item in flight is unknown, so
  // that the batch is evaluated again item by item. Default: every answer is sound.
  std::function<bool(const Message&)> is_sound;
  // In the order of the items, without gaps. False: no more is wanted, nothing is delivered after.
  std::function<bool(const BatchAnswer&)> deliver;

  // Items that were delivered: first .. result - 1. Errors: kUnsupported when no process can be
  // made; what deliver throws.
  int64_t Run();
  // Workers that were lost and replaced.
  int64_t replaced() const { return replaced_; }

 private:
  struct Worker;
  struct Piece;
  struct Queue;

  void Assign();
  void Take(Worker* worker);
  void Lose(Worker* worker, Outcome outcome, const std::string& reason);
  void Restart(Worker* worker);
  bool DeliverArrived();

  PoolOptions options_;
  std::function<EvaluateBatch()> make_evaluator_;
  std::unique_ptr<Queue> queue_;
  int64_t replaced_ = 0;
};

// "crashed (signal 6, Aborted): what it printed last".
std::string LossReason(const ChildOutcome& outcome);

}  // namespace kvcheck

#endif  // TOOLS_CAMPAIGN_PROCESS_POOL_H_
