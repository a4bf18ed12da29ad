// How the workers of a pool find a call, and how its caller knows that none is in it any more. The
// operations on shared variables are those of Sync, so that a test runs this code under every order
// of them (tests/optimized/attention/pool_protocol_test.cc).
//
// Sync::Variable: an unsigned counter, sequentially consistent: load, store, fetch_add, fetch_sub,
// wait (blocks while the value is what the argument says, until a notify_all) and notify_all.
// Sync::SpinUntil(done): until done(), or for some time.
// Sync::AwaitZero(variable): returns when the variable is 0.

#ifndef OPTIMIZED_ATTENTION_POOL_PROTOCOL_H_
#define OPTIMIZED_ATTENTION_POOL_PROTOCOL_H_

namespace kvcheck::optimized {

template <typename Sync>
class PoolProtocol {
 public:
  // What a worker's thread runs until Stop; run() is its part of a call.
  template <typename Part>
  void Serve(Part run) {
    unsigned served = 0;
    while (ServeOne(&served, run)) {
    }
  }
  // Waits for a call other than `served` and runs it, if it is still open then. False: stopped.
  template <typename Part>
  bool ServeOne(unsigned* served, Part run) {
    unsigned now = 0;
    const auto called = [&] {
      now = call_.load();
      return IsOpen(now) && now != *served;
    };
    Sync::SpinUntil([&] { return called() || stop_.load() != 0; });
    while (!called()) {
      if (stop_.load() != 0) return false;
      call_.wait(now);
    }
    inside_.fetch_add(1);
    now = call_.load();  // it may be closed by now, and another one open
    if (IsOpen(now)) {
      run();
      *served = now;
    }
    inside_.fetch_sub(1);
    return true;
  }

  // A call, by one thread, one at a time; run() is its own part. What the parts of the others read
  // is written before. None of them runs when this returns.
  template <typename Part>
  void Run(Part run) {
    call_.fetch_add(1);
    call_.notify_all();
    run();
    call_.fetch_add(1);
    // The others are at their last item.
    Sync::AwaitZero(inside_);
  }

  // Serve returns in every thread; no call comes after it.
  void Stop() {
    stop_.store(1);
    call_.fetch_add(2);
    call_.notify_all();
  }

 private:
  static bool IsOpen(unsigned call) { return call % 2 == 1; }

  // The number of the call and whether it is open are one variable: a worker that could see a new
  // number before the call is open would take it for one that has ended, and never come.
  typename Sync::Variable call_{0};
  // A worker is counted before it looks whether the call is open, and the caller closes the call
  // before it looks whether one is counted: in one order of all of these, either sees the other.
  typename Sync::Variable inside_{0};
  typename Sync::Variable stop_{0};
};

}  // namespace kvcheck::optimized

#endif  // OPTIMIZED_ATTENTION_POOL_PROTOCOL_H_
