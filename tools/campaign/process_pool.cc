#include "tools/campaign/process_pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "reference/prefix/folder.h"
#include "reference/spec/error.h"
#include "tools/campaign/shared_memory.h"
#include "tools/process/message_codec.h"

namespace kvcheck {
namespace {

constexpr std::chrono::milliseconds kLookInterval{50};
// Batches that may wait for an earlier one, per worker: bounds memory while one item hangs.
constexpr size_t kMostWaiting = 256;

std::string LastLine(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  const size_t end = text.rfind('\n');
  return std::string(end == std::string_view::npos ? text : text.substr(end + 1));
}

Message Request(const Batch& batch) {
  MessageEncoder encoder;
  encoder.Integer(batch.first);
  encoder.Integer(batch.count);
  return encoder.message();
}

}  // namespace

std::string LossReason(const ChildOutcome& outcome) {
  // A sanitizer names the fault in its summary; the lines around it have addresses and process
  // numbers, which are others each time.
  const size_t summary = outcome.stderr_tail.rfind("SUMMARY: ");
  const std::string last =
      summary != std::string::npos
          ? outcome.stderr_tail.substr(summary, outcome.stderr_tail.find('\n', summary) - summary)
          : LastLine(outcome.stderr_tail);
  if (outcome.end == ChildEnd::kExited && outcome.code == kChildThrewExitCode) {
    return fmt::format("threw: {}", last);
  }
  return ToString(outcome) + (last.empty() ? "" : ": " + last);
}

// A batch that is to be evaluated, or is.
struct ProcessPool::Piece {
  Batch batch;
  // Of one item that was lost before: it runs alone in a fresh worker.
  std::optional<BatchAnswer> lost;
};

struct ProcessPool::Worker {
  SharedValue<ItemMark::Shared> mark;
  std::unique_ptr<SupervisedChild> child;
  std::optional<Piece> piece;
  bool fresh = true;  // has evaluated nothing yet
};

struct ProcessPool::Queue {
  std::vector<std::unique_ptr<Worker>> workers;
  std::deque<Piece> again;  // parts of batches whose worker was lost, before everything new
  std::map<int64_t, BatchAnswer> arrived;
  int64_t next = 0;  // the first item that no batch has yet
  int64_t delivered = 0;
};

ProcessPool::ProcessPool(const PoolOptions& options, std::function<EvaluateBatch()> make_evaluator)
    : options_(options),
      make_evaluator_(std::move(make_evaluator)),
      queue_(std::make_unique<Queue>()) {
  options_.limits.on_end = RemovePrefixFoldersOf;
}

ProcessPool::~ProcessPool() = default;

void ProcessPool::Restart(Worker* worker) {
  worker->mark.get()->item.store(-1);
  worker->mark.get()->step.store(-1);
  worker->child = nullptr;
  ItemMark::Shared* shared = worker->mark.get();
  worker->child = std::make_unique<SupervisedChild>(
      [this, shared](ChildChannel& channel) {
        OwnPrefixFolders(getpid());
        const EvaluateBatch evaluate = make_evaluator_();
        ItemMark mark(shared, &channel);
        while (const std::optional<Message> request = channel.Receive()) {
          MessageDecoder decoder(*request);
          Batch batch;
          batch.first = decoder.Integer();
          batch.count = decoder.Integer();
          MessageEncoder header;
          header.Integer(batch.first);
          Message answer = header.message();
          const Message result = evaluate(batch, mark);
          answer.insert(answer.end(), result.begin(), result.end());
          channel.Send(answer);
        }
        return 0;
      },
      options_.limits);
  worker->fresh = true;
}

void ProcessPool::Assign() {
  const PoolState now = state ? state() : PoolState::kGoOn;
  for (const std::unique_ptr<Worker>& worker : queue_->workers) {
    if (worker->piece) continue;
    Piece piece;
    if (!queue_->again.empty()) {
      piece = std::move(queue_->again.front());
      queue_->again.pop_front();
    } else {
      const int64_t left = options_.items < 0 ? options_.largest_batch
                                              : std::max<int64_t>(0, options_.items - queue_->next);
      const int64_t most = std::clamp<int64_t>(queue_->next / 8, 1, options_.largest_batch);
      if (left == 0 || now != PoolState::kGoOn) continue;
      if (queue_->arrived.size() >= kMostWaiting * queue_->workers.size()) continue;
      piece.batch = {queue_->next, std::min(left, most)};
      queue_->next += piece.batch.count;
    }
    if (worker->child == nullptr || (piece.lost && !worker->fresh)) Restart(worker.get());
    worker->piece = std::move(piece);
    // Where this fails, the child has ended, and is found so.
    worker->child->Send(Request(worker->piece->batch));
  }
}

void ProcessPool::Take(Worker* worker) {
  const std::optional<Message> message = worker->child->TakeArrived();
  if (!message) {
    const ChildOutcome& outcome = worker->child->Finish();
    return Lose(worker, outcome.end == ChildEnd::kTimedOut ? Outcome::kTimedOut : Outcome::kCrashed,
                LossReason(outcome));
  }
  worker->fresh = false;
  const Batch batch = worker->piece->batch;
  bool sound = message->size() >= sizeof(int64_t);
  Message answer;
  if (sound) {
    const auto header = std::span(*message).first(sizeof(int64_t));
    answer.assign(message->begin() + sizeof(int64_t), message->end());
    sound = MessageDecoder(header).Integer() == batch.first && (!is_sound || is_sound(answer));
  }
  if (!sound) {
    worker->mark.get()->item.store(-1);
    worker->child->Stop();
    return Lose(worker, Outcome::kCrashed, "sent an answer that is none");
  }
  BatchAnswer result;
  if (worker->piece->lost) {
    result = std::move(*worker->piece->lost);
    result.reason += "; not when it ran alone: what ran before it may have damaged memory";
  } else {
    result.answer = std::move(answer);
  }
  result.batch = batch;
  worker->piece.reset();
  queue_->arrived.emplace(batch.first, std::move(result));
}

void ProcessPool::Lose(Worker* worker, Outcome outcome, const std::string& reason) {
  ++replaced_;
  const Piece piece = std::move(*worker->piece);
  worker->piece.reset();
  const int64_t step = worker->mark.get()->step.load();
  const int64_t marked = worker->mark.get()->item.load();
  worker->child = nullptr;
  const Batch& batch = piece.batch;
  BatchAnswer lost;
  lost.outcome = outcome;
  lost.reason = reason;
  if (piece.lost) {
    lost.batch = batch;
    lost.step = step;
    queue_->arrived.emplace(batch.first, std::move(lost));
    return;
  }
  const bool known = marked >= batch.first && marked < batch.end();
  if (!known && batch.count > 1) {
    // Nobody knows which item it was: halves find it.
    const int64_t half = batch.count / 2;
    queue_->again.push_back({{batch.first, half}, {}});
    queue_->again.push_back({{batch.first + half, batch.count - half}, {}});
    return;
  }
  const int64_t item = known ? marked : batch.first;
  lost.batch = {item, 1};
  lost.step = known ? step : -1;
  if (item > batch.first) queue_->again.push_back({{batch.first, item - batch.first}, {}});
  queue_->again.push_back({lost.batch, lost});
  if (item + 1 < batch.end()) queue_->again.push_back({{item + 1, batch.end() - item - 1}, {}});
}

bool ProcessPool::DeliverArrived() {
  while (!queue_->arrived.empty() && queue_->arrived.begin()->first == queue_->delivered) {
    const BatchAnswer answer = std::move(queue_->arrived.extract(queue_->arrived.begin()).mapped());
    queue_->delivered = answer.batch.end();
    if (deliver && !deliver(answer)) return false;
  }
  return true;
}

int64_t ProcessPool::Run() {
  queue_ = std::make_unique<Queue>();
  queue_->next = queue_->delivered = options_.first;
  for (int i = 0; i < options_.workers; ++i) queue_->workers.push_back(std::make_unique<Worker>());
  while (true) {
    Assign();
    std::vector<Worker*> busy;
    std::vector<SupervisedChild*> children;
    for (const std::unique_ptr<Worker>& worker : queue_->workers) {
      if (!worker->piece) continue;
      busy.push_back(worker.get());
      children.push_back(worker->child.get());
    }
    if (busy.empty()) break;
    const std::optional<size_t> ready = SupervisedChild::WaitAny(children, kLookInterval);
    if (state && state() == PoolState::kStop) break;
    if (!ready) continue;
    Take(busy[*ready]);
    if (!DeliverArrived()) break;
  }
  const int64_t delivered = queue_->delivered;
  queue_ = std::make_unique<Queue>();  // ends all workers
  return delivered;
}

}  // namespace kvcheck
