// One cache of a remote factory.

#ifndef TOOLS_PROCESS_REMOTE_CACHE_OBJECT_H_
#define TOOLS_PROCESS_REMOTE_CACHE_OBJECT_H_

#include <memory>
#include <string>
#include <string_view>

#include "reference/spec/cache_implementation.h"
#include "tools/process/remote_caches.h"
#include "tools/process/remote_state.h"

namespace kvcheck {

class RemoteCache : public Cache {
 public:
  explicit RemoteCache(std::shared_ptr<RemoteCaches> caches) : caches_(std::move(caches)) {
    Renumber();
  }
  ~RemoteCache() override {
    if (exists_) caches_->Drop(number_, generation_);
  }

  OpResult Append(const TokenColumns& columns) override;
  OpResult Prepare(std::span<const int64_t> lengths, int64_t columns) override;
  OpResult Finalize() override;
  OpResult Trim(int64_t count, int64_t* trimmed) override;
  OpResult Filter(std::span<const int64_t> rows) override;
  OpResult Extend(const Cache& other) override;
  OpResult ToQuantized(const KvFormat& k, const KvFormat& v) override;
  OpResult Extract(int64_t row, std::unique_ptr<Cache>* out) const override;
  OpResult CopyTo(std::unique_ptr<Cache>* out) const override;
  OpResult Save(StateStore* store, std::string_view key) const override;
  OpResult Attend(const AttendRequest& request, std::byte* out) override;
  void Observe(StepView* view) override;
  int64_t RetainedTokens(int64_t row) const override;

  int64_t number() const { return number_; }
  const KvFormat& k() const { return k_; }
  const KvFormat& v() const { return v_; }
  // It holds a cache of these formats now.
  void Made(const KvFormat& k, const KvFormat& v);
  // A call named it; its state was told in one. Calls are numbered (RemoteProcess::calls).
  void Named(int64_t call) const { named_ = call; }
  // What breaks the protocol in it is said when the state is looked at: a wrong refusal or
  // acceptance is judged before.
  void TakeState(const WireValue& value, std::shared_ptr<const Message> bytes, int64_t call) const;
  void ExpectState(int64_t call) const { told_ = call; }
  bool IsTold(int64_t call) const { return told_ == call; }
  // Where it is of an earlier case: a number of this one.
  void Renew() {
    if (generation_ != caches_->generation()) Renumber();
  }

 private:
  void Renumber() {
    number_ = caches_->NewNumber();
    generation_ = caches_->generation();
    exists_ = false;
    told_ = named_ = -1;
  }
  WireWriter& Begin(std::string_view request) const;
  void AskState() const;

  std::shared_ptr<RemoteCaches> caches_;
  int64_t number_ = 0;
  int64_t generation_ = 0;
  bool exists_ = false;
  KvFormat k_ = PlainFormat{};
  KvFormat v_ = PlainFormat{};
  // What was told last, in which call, and the last call that named the cache.
  mutable RemoteState state_;
  mutable std::string broken_;  // how the state that was told breaks the protocol; "": it does not
  mutable int64_t told_ = -1;
  mutable int64_t named_ = -1;
};

// The cache that a call makes: the spare in *out, or one that is put there when it is made. Where
// it is not, its number is the next one again, so that numbers do not depend on who had spares.
class RemoteTarget {
 public:
  RemoteTarget(const std::shared_ptr<RemoteCaches>& caches, std::unique_ptr<Cache>* out);
  ~RemoteTarget() {
    if (fresh_ != nullptr) caches_->TakeBack(fresh_->number());
  }
  RemoteTarget(const RemoteTarget&) = delete;
  RemoteTarget& operator=(const RemoteTarget&) = delete;
  RemoteCache* get() const { return cache_; }
  void Made(const KvFormat& k, const KvFormat& v);

 private:
  RemoteCaches* caches_;
  std::unique_ptr<Cache>* out_;
  std::unique_ptr<RemoteCache> fresh_;
  RemoteCache* cache_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_CACHE_OBJECT_H_
