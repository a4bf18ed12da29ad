// What the caches of one remote factory share: the process, the numbers of caches, and the parts
// that all requests about caches have.

#ifndef TOOLS_PROCESS_REMOTE_CACHES_H_
#define TOOLS_PROCESS_REMOTE_CACHES_H_

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/spec/cache_implementation.h"
#include "reference/trace/trace_store.h"
#include "tools/process/remote_process.h"
#include "tools/process/remote_state.h"

namespace kvcheck {

class RemoteCache;

class RemoteCaches {
 public:
  explicit RemoteCaches(std::shared_ptr<RemoteProcess> process)
      : process_(std::move(process)), store_(this) {}

  RemoteProcess& process() { return *process_; }
  const CacheSetup& setup() const { return setup_; }
  OpResult Start(const CacheSetup& setup);

  // A request about caches, with what is to be dropped; its own keys follow.
  WireWriter& Begin(std::string_view request);
  // Sends it. caches: those that it names; their states come with the answer where the hint says
  // so. made: the one that it makes, or null. on_ok(answer): called before states are read, where
  // the call was carried out; answer: null in a rehearsal. Errors: RemoteLoss.
  template <typename F>
  OpResult Finish(std::initializer_list<const RemoteCache*> caches, const RemoteCache* made,
                  F on_ok) {
    return Finish(std::span(caches.begin(), caches.size()), made, std::move(on_ok));
  }
  template <typename F>
  OpResult Finish(std::span<const RemoteCache* const> caches, const RemoteCache* made, F on_ok) {
    SendObserve(caches, made);
    if (!FitsFrame()) return OpResult::Unsupported(message_);
    if (rehearses_) {
      Announce();
      if (expected_legal_) on_ok(nullptr);
      ExpectStates(caches, expected_legal_ ? made : nullptr, made != nullptr);
      return expected_legal_ ? OpResult() : OpResult::Refuse("");
    }
    const WireValue answer = process_->Call();
    dropped_.clear();
    return process_->Interpret([&] {
      OpResult result = StatusOf(answer);
      const std::optional<WireValue> changed = answer.Find("results_changed");
      result.results_changed = changed && changed->AsBool("'results_changed'");
      if (result.ok()) on_ok(&answer);
      ReadStates(answer, caches, result.ok() ? made : nullptr, made != nullptr);
      return result;
    });
  }
  // Asks for the states of caches. Errors: RemoteLoss.
  void Observe(std::span<const RemoteCache* const> caches);

  // A rehearsal (CacheFactory): Finish and Observe announce their requests in place of calling.
  void BeginRehearsal();
  void EndRehearsal() { rehearses_ = false; }
  bool rehearses() const { return rehearses_; }
  // Of the next call. False: the process takes no more.
  bool Expect(bool legal) {
    expected_legal_ = legal;
    return takes_more_;
  }

  int64_t NewNumber() { return next_number_++; }
  // Of the last new number: it was not used.
  void TakeBack(int64_t number) { next_number_ = number; }
  void Drop(int64_t number, int64_t generation) {
    if (generation == generation_) dropped_.push_back(number);
  }
  // Changes with each Start: earlier caches are gone.
  int64_t generation() const { return generation_; }

  TraceStore* store() { return &store_; }
  // Formats of what was saved.
  std::map<std::string, std::pair<KvFormat, KvFormat>, std::less<>> saved;
  void Saved(std::string_view key) { store_.Saved(key); }

  // How an answer was computed, where it says so; else null. Errors: WireError.
  const Plan* PlanOf(const WireValue& answer);
  const Profile* ProfileOf(const WireValue& answer);
  ObserveHint hint = ObserveHint::kTouched;

 private:
  class Store : public TraceStore {
   public:
    explicit Store(RemoteCaches* caches) : caches_(caches) {}
    void Put(std::string_view, const StateRecord&) override {}
    StoreStatus Get(std::string_view, StateRecord*) const override { return StoreStatus::kMissing; }
    void Clear() override { damaged_.clear(); }
    OpResult Damage(std::string_view key, const CacheOp& op) override;
    bool IsAsPut(std::string_view key) const override { return !damaged_.contains(key); }
    void Saved(std::string_view key);

   private:
    RemoteCaches* caches_;
    std::map<std::string, bool, std::less<>> damaged_;
  };

  void SendObserve(std::span<const RemoteCache* const> caches, const RemoteCache* made);
  bool FitsFrame();
  OpResult StatusOf(const WireValue& answer);
  // ask_made: the state of a cache to be made was asked for, after all others.
  void ReadStates(const WireValue& answer, std::span<const RemoteCache* const> caches,
                  const RemoteCache* made, bool ask_made);

  void Announce() {
    takes_more_ = process_->Announce() && takes_more_;
    dropped_.clear();
  }
  // What ReadStates would do to what is remembered of the caches.
  void ExpectStates(std::span<const RemoteCache* const> caches, const RemoteCache* made,
                    bool ask_made);

  std::shared_ptr<RemoteProcess> process_;
  bool rehearses_ = false;
  bool expected_legal_ = true;
  bool takes_more_ = true;
  CacheSetup setup_;
  Store store_;
  int64_t next_number_ = 0;
  int64_t generation_ = 0;
  std::vector<int64_t> dropped_;
  std::string message_;
  std::map<std::string, Plan, std::less<>> plans_;
  std::map<std::string, Profile, std::less<>> profiles_;
};

}  // namespace kvcheck

#endif  // TOOLS_PROCESS_REMOTE_CACHES_H_
