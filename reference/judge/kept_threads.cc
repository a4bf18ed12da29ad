#include "reference/judge/kept_threads.h"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace kvcheck {
namespace {

struct Job {
  std::function<void()> work;
  std::function<void()> done;
};

class Pool {
 public:
  bool Run(Job job) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        Kept* kept = idle_.back();
        idle_.pop_back();
        kept->job.emplace_back(std::move(job));
        kept->given.notify_one();
        return true;
      }
    }
    try {
      std::thread([this, first = std::make_shared<Job>(std::move(job))] {
        Kept self;
        self.job.push_back(std::move(*first));
        Serve(&self);
      }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

 private:
  struct Kept {
    std::condition_variable given;
    std::vector<Job> job;  // at most one
  };

  [[noreturn]] void Serve(Kept* self) {
    std::unique_lock lock(mutex_);
    while (true) {
      self->given.wait(lock, [&] { return !self->job.empty(); });
      Job job = std::move(self->job.back());
      self->job.pop_back();
      lock.unlock();
      job.work();
      lock.lock();
      idle_.push_back(self);
      lock.unlock();
      job.done();
      job = {};
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::vector<Kept*> idle_;
};

// Never destroyed: its threads use it until the process ends.
std::atomic<Pool*> pool = nullptr;

Pool& ThePool() {
  // The parent's threads are not in the child, and its mutex may be held there for ever.
  static const int kForgottenByChildren =
      pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); });
  static_cast<void>(kForgottenByChildren);
  Pool* there = pool.load();
  if (there != nullptr) return *there;
  auto made = std::make_unique<Pool>();
  return pool.compare_exchange_strong(there, made.get()) ? *made.release() : *there;
}

}  // namespace

bool RunOnKeptThread(std::function<void()> work, std::function<void()> done) {
  return ThePool().Run({std::move(work), std::move(done)});
}

KeptThreads::KeptThreads(int64_t count, const std::function<void()>& work) {
  for (int64_t i = 0; i < count; ++i) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    if (RunOnKeptThread(work, [this] {
          const std::lock_guard lock(mutex_);
          --running_;
          ended_.notify_all();
        })) {
      continue;
    }
    const std::lock_guard lock(mutex_);
    --running_;
    return;
  }
}

KeptThreads::~KeptThreads() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return running_ == 0; });
}

}  // namespace kvcheck
