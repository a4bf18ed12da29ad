#include "golden/bus_guard.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "reference/spec/error.h"

namespace kvcheck {

struct GuardedRange {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0: the slot is free
  std::atomic<std::atomic<bool>*> damaged{nullptr};
};

namespace {

// Slots are never freed, only reused: the handler may walk them at any time.
struct Block {
  std::array<GuardedRange, 256> ranges;
  std::atomic<Block*> next{nullptr};
};

Block g_first_block;
uintptr_t g_page_bytes = 0;
struct sigaction g_previous;

std::mutex& Mutex() {
  static std::mutex mutex;
  return mutex;
}

// Passes a signal that is not ours to whoever handled it before, or lets the default end the
// process.
void Chain(int number, siginfo_t* info, void* context) {
  if ((g_previous.sa_flags & SA_SIGINFO) != 0)
    return g_previous.sa_sigaction(number, info, context);
  if (g_previous.sa_handler != SIG_DFL && g_previous.sa_handler != SIG_IGN) {
    return g_previous.sa_handler(number);
  }
  // The access is repeated after the return and raises the signal again, now with its default; one
  // that a process sent has to be raised here.
  signal(number, SIG_DFL);
  if (info->si_code <= 0) raise(number);
}

void OnBusError(int number, siginfo_t* info, void* context) {
  // Of a mapping beyond the end of its file; memory that failed (BUS_MCEERR_*) is no such thing.
  if (info->si_code == BUS_ADRERR) {
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    for (Block* block = &g_first_block; block != nullptr; block = block->next.load()) {
      for (GuardedRange& range : block->ranges) {
        if (range.end.load() <= address || address < range.begin.load()) continue;
        const int error = errno;
        const uintptr_t page = address & ~(g_page_bytes - 1);
        // The system call itself: a sanitizer's mmap is not made for signal handlers.
        const long mapped = syscall(SYS_mmap, page, g_page_bytes, PROT_READ,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        errno = error;
        if (mapped == -1) break;
        range.damaged.load()->store(true);
        return;
      }
    }
  }
  Chain(number, info, context);
}

void Install() {
  g_page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action{};
  action.sa_sigaction = OnBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  KVCHECK_CHECK(
      sigaction(SIGBUS, nullptr, &g_previous) == 0 && sigaction(SIGBUS, &action, nullptr) == 0,
      "SIGBUS cannot be handled");
}

GuardedRange* FreeSlot() {
  for (Block* block = &g_first_block;; block = block->next.load()) {
    for (GuardedRange& range : block->ranges) {
      if (range.end.load() == 0) return &range;
    }
    if (block->next.load() == nullptr) block->next.store(new Block);
  }
}

}  // namespace

GuardedRange* GuardRange(const void* pages, size_t bytes, std::atomic<bool>* damaged) {
  static std::once_flag installed;
  std::call_once(installed, Install);
  const std::lock_guard<std::mutex> lock(Mutex());
  GuardedRange* range = FreeSlot();
  const auto begin = reinterpret_cast<uintptr_t>(pages);
  range->damaged.store(damaged);
  range->begin.store(begin);
  range->end.store(begin + bytes);
  return range;
}

void UnguardRange(GuardedRange* range) {
  const std::lock_guard<std::mutex> lock(Mutex());
  range->end.store(0);
}

}  // namespace kvcheck
