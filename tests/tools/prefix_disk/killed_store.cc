#include "killed_store.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "reference/data/generator.h"
#include "stored_prompts.h"

namespace kvcheck {
namespace {

// The memory holds all that a round stores; the folder much more.
constexpr const char* kSetup = "block=2 tokens=400 layers=2 dk=16";
constexpr int kIdentities = 3;

struct Prompt {
  int who = 0;
  Tokens tokens;
  bool operator<(const Prompt& other) const {
    return std::pair(who, tokens) < std::pair(other.who, other.tokens);
  }
};

PrefixIdentity WhoOf(int who) {
  PrefixIdentity identity;
  if (who > 0) identity.salt = std::string(static_cast<size_t>(who), 'a');
  return identity;
}

enum class Kind { kStore, kEvict, kSave, kLoad, kClear, kEpoch };
struct Operation {
  Kind kind = Kind::kStore;
  Prompt prompt;
  int key = 0;
};

// The same whenever it is asked for.
Operation OperationOf(uint64_t seed, int64_t index) {
  Generator random(seed, "killed store", static_cast<uint64_t>(index));
  Operation operation;
  operation.key = static_cast<int>(random.Below(2));
  const uint64_t draw = random.Below(100);
  operation.kind = draw < 72   ? Kind::kStore
                   : draw < 80 ? Kind::kEvict
                   : draw < 90 ? Kind::kSave
                   : draw < 95 ? Kind::kLoad
                   : draw < 98 ? Kind::kClear
                               : Kind::kEpoch;
  operation.prompt.who = static_cast<int>(random.Below(kIdentities));
  const int64_t length = random.Between(2, 12);
  for (int64_t i = 0; i < length; ++i) {
    operation.prompt.tokens.push_back(static_cast<int32_t>(random.Below(2)));
  }
  return operation;
}

bool Carry(Store* store, const Operation& operation) {
  switch (operation.kind) {
    case Kind::kStore:
      return store->Put(operation.prompt.tokens, WhoOf(operation.prompt.who));
    case Kind::kEvict:
      store->cache.Evict(store->setup.capacity_tokens / 2);
      return true;
    case Kind::kSave:
      return store->disk.Save(operation.key, store->cache.Kept()).ok();
    case Kind::kLoad: {
      optimized::KeptStore kept;
      // Refused, where nothing was saved under these weights.
      if (store->disk.Load(operation.key, &kept).ok()) store->cache.Keep(kept);
      return true;
    }
    case Kind::kClear:
      store->cache.Clear();
      return true;
    case Kind::kEpoch:
      store->cache.Epoch();
      ++store->epoch;
      return true;
  }
  return false;
}

// What a folder must have, and what it may have.
struct Contents {
  int64_t epoch = 0;
  std::set<Prompt> sure;  // whole blocks
  std::set<Prompt> perhaps;
  std::map<int, std::pair<int64_t, std::set<Prompt>>> saved;  // epoch, and what may be in it

  // returned: whether the call did.
  void Take(const Operation& operation, bool returned) {
    switch (operation.kind) {
      case Kind::kStore: {
        Prompt prompt = operation.prompt;
        prompt.tokens.resize(prompt.tokens.size() / 2 * 2);
        if (returned) sure.insert(prompt);
        perhaps.insert(std::move(prompt));
        break;
      }
      case Kind::kEvict:
        break;
      case Kind::kSave:
        saved[operation.key].first = epoch;
        if (returned) saved[operation.key].second.clear();
        saved[operation.key].second.insert(perhaps.begin(), perhaps.end());
        break;
      case Kind::kLoad:
        if (const auto found = saved.find(operation.key);
            found != saved.end() && found->second.first == epoch) {
          perhaps.insert(found->second.second.begin(), found->second.second.end());
        }
        break;
      case Kind::kClear:
      case Kind::kEpoch:
        sure.clear();
        if (!returned) break;
        perhaps.clear();
        if (operation.kind == Kind::kEpoch) ++epoch;
        break;
    }
  }
};

// The child: until it is killed, each operation that returned is a byte in the pipe.
[[noreturn]] void Work(const std::string& folder, const KillOptions& options, int64_t first,
                       int64_t epoch, int pipe) {
  try {
    Store store(optimized::SetupOf(kSetup), folder, {.sync = options.sync, .budget_bytes = 0},
                epoch);
    const char ready = 'r';
    if (write(pipe, &ready, 1) != 1) _exit(3);
    for (int64_t index = first;; ++index) {
      const char done = Carry(&store, OperationOf(options.seed, index)) ? 'd' : 'f';
      if (write(pipe, &done, 1) != 1) _exit(3);
    }
  } catch (...) {
    _exit(4);
  }
}

// "" where it is as it must be.
std::string Check(Store* store, const Contents& known, KillCounts* counts) {
  for (const Prompt& prompt : known.perhaps) {
    const int64_t hit = store->Hit(prompt.tokens, WhoOf(prompt.who));
    const auto whole = std::ssize(prompt.tokens);
    const std::string text = fmt::format("identity {}, {} tokens", prompt.who, whole);
    if (hit < 0) return fmt::format("{}: wrong rows", text);
    if (known.sure.contains(prompt)) {
      if (hit < whole) return fmt::format("{}: {} of them are there", text, hit);
      ++counts->prompts_found;
    } else if (hit == whole) {
      ++counts->perhaps;
    }
  }
  // What nobody stored since all was forgotten is not there.
  for (int who = 0; who < kIdentities; ++who) {
    for (const int32_t token : {0, 1}) {
      const Tokens block = {token, token};
      const bool may =
          std::any_of(known.perhaps.begin(), known.perhaps.end(), [&](const Prompt& p) {
            return p.who == who && p.tokens.size() >= 2 &&
                   std::equal(block.begin(), block.end(), p.tokens.begin());
          });
      if (!may && store->Hit(block, WhoOf(who)) != 0) {
        return fmt::format("identity {}, block {}: forgotten, and there", who, token);
      }
    }
  }
  return "";
}

int64_t CountFiles(const std::string& folder) {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.is_regular_file() ? 1 : 0;
  }
  return count;
}

}  // namespace

std::string KillStores(const std::string& folder, const KillOptions& options, KillCounts* counts) {
  Contents known;
  int64_t next = 0;
  for (int64_t round = 0; counts->kills < options.kills; ++round) {
    int ends[2];
    if (pipe(ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child < 0) return "no process";
    if (child == 0) {
      close(ends[0]);
      Work(folder, options, next, known.epoch, ends[1]);
    }
    close(ends[1]);
    // Of four kills three are at work, after as many operations as are drawn, on however slow a
    // machine; the fourth may be while the folder is opened.
    Generator random(options.seed, "moments of kills", static_cast<uint64_t>(round));
    char answer = 0;
    int64_t returned = 0;
    bool has_failed = false;
    const auto take_answer = [&] {
      if (read(ends[0], &answer, 1) != 1) return false;
      returned += answer == 'd' ? 1 : 0;
      has_failed = has_failed || answer == 'f';
      return true;
    };
    if (random.Below(4) != 0) {
      if (!take_answer()) return "the process does not start";
      const int64_t least = random.Between(0, 6);
      while (returned < least && take_answer()) {
      }
    }
    const int64_t most_us = options.sync ? 120'000 : 4'000;
    std::this_thread::sleep_for(std::chrono::microseconds(random.Between(0, most_us)));
    kill(child, SIGKILL);
    while (take_answer()) {
    }
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const std::string where = fmt::format("seed {}, kill {}: ", options.seed, counts->kills);
    if (has_failed || !WIFSIGNALED(status)) return where + "the process failed by itself";
    ++counts->kills;
    counts->operations += returned;
    for (int64_t i = 0; i < returned; ++i) known.Take(OperationOf(options.seed, next + i), true);
    next += returned;
    known.Take(OperationOf(options.seed, next), false);
    const int64_t files = CountFiles(folder);
    Store store(optimized::SetupOf(kSetup), folder, {.sync = false, .budget_bytes = 0},
                known.epoch);
    const int64_t left = files - CountFiles(folder);
    counts->leftovers += left;
    counts->unfinished += left > 0 ? 1 : 0;
    if (store.disk.was_damaged()) return where + "the index is damaged";
    const std::string wrong = Check(&store, known, counts);
    if (!wrong.empty()) return where + wrong;
  }
  return "";
}

}  // namespace kvcheck
