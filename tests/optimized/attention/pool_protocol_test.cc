// The protocol of the worker pool under every order of its operations on shared variables: a
// wake-up is never lost, a worker runs a call once at most, and never after the call has returned.
// No thread runs here and no time passes. What a thread does next follows from what its operations
// have given so far: its code runs again on those results, and stops at the first one without.

#include "optimized/attention/pool_protocol.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace kvcheck {
namespace {

enum class Kind {
  kLoad,
  kStore,
  kAdd,
  kWait,
  kNotifyAll,
  kAwaitZero,
  kAwaitAll,
  kEnter,
  kLeave,
  kReturn
};

// An operation: its effect and its result come from the state that it meets.
struct Operation {
  Kind kind = Kind::kLoad;
  size_t variable = 0;
  unsigned value = 0;  // of kEnter, kReturn and kAwaitAll: the call
};

// What a thread's code runs on: the results of its operations so far.
struct Replay {
  const std::vector<unsigned>* results = nullptr;
  size_t next = 0;
  size_t variables = 1;  // made so far, in the order of their declarations; 0: see kContext
};
Replay* replay = nullptr;
// What the caller writes before a call for the others to read: the call's number.
constexpr size_t kContext = 0;
constexpr size_t kVariables = 6;

unsigned Do(Kind kind, size_t variable = 0, unsigned value = 0) {
  if (replay->next == replay->results->size()) throw Operation{kind, variable, value};
  return (*replay->results)[replay->next++];
}

struct Model {
  class Variable {
   public:
    explicit Variable(unsigned /*zero*/) : id_(replay->variables++) {}
    unsigned load() const { return Do(Kind::kLoad, id_); }
    void store(unsigned value) { Do(Kind::kStore, id_, value); }
    void fetch_add(unsigned value) { Do(Kind::kAdd, id_, value); }
    void fetch_sub(unsigned value) { Do(Kind::kAdd, id_, 0U - value); }
    void wait(unsigned old) { Do(Kind::kWait, id_, old); }
    void notify_all() { Do(Kind::kNotifyAll, id_); }
    size_t id() const { return id_; }

   private:
    size_t id_;
  };
  // One look: how often it was repeated shows in nothing but the last result.
  template <typename Done>
  static bool SpinUntil(Done done) {
    return done();
  }
  static void AwaitZero(const Variable& variable) { Do(Kind::kAwaitZero, variable.id()); }
};

// The number of a call and whether it is open as two variables, in either order of setting them. In
// the first a worker that spins takes a call that is not open yet for one that has ended.
template <bool kNumberFirst>
class TwoVariables {
 public:
  template <typename Part>
  bool ServeOne(unsigned* served, Part run) {
    while (call_.load() == *served) call_.wait(*served);
    unsigned now = call_.load();
    if (stop_.load() != 0) return false;
    inside_.fetch_add(1);
    if (open_.load() != 0) {
      now = call_.load();
      if (now != *served) run();
    }
    inside_.fetch_sub(1);
    *served = now;
    return true;
  }
  template <typename Part>
  void Run(Part run) {
    if (!kNumberFirst) open_.store(1);
    call_.fetch_add(1);
    if (kNumberFirst) open_.store(1);
    call_.notify_all();
    run();
    open_.store(0);
    Model::AwaitZero(inside_);
  }
  void Stop() {
    stop_.store(1);
    call_.fetch_add(1);
    call_.notify_all();
  }

 private:
  Model::Variable call_{0}, open_{0}, inside_{0}, stop_{0};
};

struct Question {
  size_t workers = 3;  // the caller among them
  unsigned calls = 2;
  bool caller_waits_for_all = false;  // in each call
  bool wait_compares = true;          // false: wait blocks whatever the value is by then
};

struct Outcome {
  size_t states = 0;
  std::string fault;  // "": none
};

// Visits every state that can be reached, each once.
template <typename Protocol>
class Explorer {
 public:
  explicit Explorer(const Question& question) : question_(question) {}

  Outcome Run() {
    State first;
    first.threads.resize(question_.workers);
    first.values.assign(kVariables, 0);
    std::vector<State> open = {first};
    std::set<std::vector<unsigned>> seen = {KeyOf(first)};
    while (!open.empty()) {
      const State state = std::move(open.back());
      open.pop_back();
      ++outcome_.states;
      bool moved = false;
      bool ended = true;
      for (size_t thread = 0; thread < state.threads.size(); ++thread) {
        const Next& next = NextOf(thread, state.threads[thread]);
        ended = ended && next.ended;
        if (next.ended || !Enabled(state, thread, next.operation)) continue;
        moved = true;
        State after = state;
        Apply(next.operation, thread, &after);
        if (!outcome_.fault.empty()) return outcome_;
        if (seen.insert(KeyOf(after)).second) open.push_back(std::move(after));
      }
      if (!moved && !ended) {
        outcome_.fault = "waits for ever";
        return outcome_;
      }
    }
    return outcome_;
  }

 private:
  enum Sleep : unsigned { kAwake, kAsleep, kWoken };
  struct Thread {
    unsigned served = 0;  // of a worker, when its code began; the results are those since then
    std::vector<unsigned> results;
    Sleep sleep = kAwake;
    unsigned entered = 0;  // the last call that it ran
    bool running = false;
  };
  struct State {
    std::vector<Thread> threads;
    std::vector<unsigned> values;
    unsigned returned = 0;  // calls
  };
  struct Next {
    bool ended = false;
    Operation operation;
    bool begins_anew = false;  // with `served`
    unsigned served = 0;
  };

  static std::vector<unsigned> KeyOf(const State& state) {
    std::vector<unsigned> key = state.values;
    for (const Thread& thread : state.threads) {
      key.push_back(static_cast<unsigned>(thread.results.size()));
      key.push_back(thread.served);
      key.push_back(thread.entered);
      key.push_back(thread.running ? 1 : 0);
      key.push_back(thread.sleep);
      key.insert(key.end(), thread.results.begin(), thread.results.end());
    }
    return key;
  }

  // The thread's code on what its operations gave.
  Next Follow(size_t thread, unsigned served, const std::vector<unsigned>& results) const {
    Replay here{&results};
    replay = &here;
    try {
      Protocol protocol;
      if (thread > 0) {
        const bool goes_on = protocol.ServeOne(&served, [] {
          Do(Kind::kEnter, 0, Do(Kind::kLoad, kContext));
          Do(Kind::kLeave);
        });
        return {!goes_on, {}, goes_on, served};
      }
      for (unsigned call = 1; call <= question_.calls; ++call) {
        Do(Kind::kStore, kContext, call);
        protocol.Run([&] {
          if (question_.caller_waits_for_all) Do(Kind::kAwaitAll, 0, call);
        });
        Do(Kind::kReturn, 0, call);
      }
      protocol.Stop();
    } catch (const Operation& operation) {
      return {false, operation};
    }
    return {true, {}};
  }

  const Next& NextOf(size_t thread, const Thread& of) {
    std::vector<unsigned> key = of.results;
    key.push_back(of.served);
    const auto [found, is_new] = next_.try_emplace({thread, std::move(key)});
    if (is_new) found->second = Follow(thread, of.served, of.results);
    return found->second;
  }

  static bool Enabled(const State& state, size_t thread, const Operation& operation) {
    if (state.threads[thread].sleep == kAsleep) return false;
    if (operation.kind == Kind::kAwaitZero) return state.values[operation.variable] == 0;
    if (operation.kind != Kind::kAwaitAll) return true;
    for (size_t other = 1; other < state.threads.size(); ++other) {
      if (state.threads[other].entered != operation.value) return false;
    }
    return true;
  }

  void Apply(const Operation& operation, size_t thread, State* state) {
    Thread& self = state->threads[thread];
    unsigned& value = state->values[operation.variable];
    unsigned result = 0;
    switch (operation.kind) {
      case Kind::kLoad:
        result = value;
        break;
      case Kind::kStore:
        value = operation.value;
        break;
      case Kind::kAdd:
        value += operation.value;
        break;
      case Kind::kWait:
        if (question_.wait_compares ? value == operation.value : self.sleep == kAwake) {
          self.sleep = kAsleep;
          return;
        }
        self.sleep = kAwake;
        break;
      case Kind::kNotifyAll:
        for (size_t other = 0; other < state->threads.size(); ++other) {
          Thread& sleeper = state->threads[other];
          if (sleeper.sleep == kAsleep &&
              NextOf(other, sleeper).operation.variable == operation.variable) {
            sleeper.sleep = kWoken;
          }
        }
        break;
      case Kind::kEnter:
        if (operation.value <= state->returned) outcome_.fault = "runs a call that has returned";
        if (operation.value <= self.entered) outcome_.fault = "runs a call twice";
        self.entered = operation.value;
        self.running = true;
        break;
      case Kind::kLeave:
        self.running = false;
        break;
      case Kind::kReturn:
        for (const Thread& other : state->threads) {
          if (other.running) outcome_.fault = "returns while a worker runs the call";
        }
        state->returned = operation.value;
        break;
      case Kind::kAwaitZero:
      case Kind::kAwaitAll:
        break;
    }
    self.results.push_back(result);
    const Next& next = NextOf(thread, self);
    if (next.begins_anew) {
      self.served = next.served;
      self.results.clear();
    }
  }

  const Question question_;
  Outcome outcome_;
  std::map<std::pair<size_t, std::vector<unsigned>>, Next> next_;
};

using Protocol = optimized::PoolProtocol<Model>;

TEST(PoolProtocol, LosesNoWakeUpInAnyOrder) {
  for (const unsigned calls : {1U, 2U, 3U}) {
    for (const size_t workers : {2U, 3U}) {
      const Outcome outcome = Explorer<Protocol>({workers, calls, true}).Run();
      EXPECT_EQ(outcome.fault, "") << calls << " calls, " << workers << " workers";
      EXPECT_GT(outcome.states, 50U);
    }
  }
}

TEST(PoolProtocol, RunsACallOnceAtMostAndNeverAfterItsReturnInAnyOrder) {
  for (const unsigned calls : {0U, 1U, 2U, 3U}) {
    for (const size_t workers : {2U, 3U}) {
      if (workers == 3 && calls == 3) continue;  // 4.4 million states
      const Outcome outcome = Explorer<Protocol>({workers, calls}).Run();
      EXPECT_EQ(outcome.fault, "") << calls << " calls, " << workers << " workers";
    }
  }
}

// What the exploration is worth.
TEST(PoolProtocol, FaultsAreFound) {
  EXPECT_EQ(Explorer<TwoVariables<true>>({2, 1, true}).Run().fault, "waits for ever");
  EXPECT_EQ(Explorer<TwoVariables<false>>({2, 2}).Run().fault, "runs a call twice");
  EXPECT_EQ(Explorer<Protocol>({2, 1, true, false}).Run().fault, "waits for ever");
}

}  // namespace
}  // namespace kvcheck
