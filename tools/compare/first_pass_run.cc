#include "tools/compare/first_pass_run.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <set>
#include <utility>

#include "reference/judge/ordered_parallel.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

// Of one side; each thread holds two of them. A power of two of blocks of every type, and the same
// for any number of threads, so that errors are too.
constexpr int64_t kWindowBytes = int64_t{4} << 20;
// Of small tensors, which lie one after the other: what is mapped of one serves the next.
constexpr int64_t kSharedWindowBytes = int64_t{1} << 20;
// Of one task: the summaries of small tensors are larger than these.
constexpr size_t kMostStretches = 1024;

// Elements of one pair that are compared at once.
struct Stretch {
  size_t pair = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Consecutive stretches, so many that they are worth a thread's turn.
struct Task {
  size_t first_stretch = 0;
  size_t stretch_count = 0;
};

struct TaskPlan {
  std::vector<Stretch> stretches;
  std::vector<Task> tasks;
};

TaskPlan TaskPlanOf(std::span<const PassPair> pairs) {
  TaskPlan plan;
  int64_t task_bytes = 0;
  const auto begin_of_task = [&] {
    return plan.tasks.empty() ? 0
                              : plan.tasks.back().first_stretch + plan.tasks.back().stretch_count;
  };
  const auto end_task = [&] {
    const size_t begun = begin_of_task();
    if (begun < plan.stretches.size()) plan.tasks.push_back({begun, plan.stretches.size() - begun});
    task_bytes = 0;
  };
  for (size_t p = 0; p < pairs.size(); ++p) {
    const int64_t size = static_cast<int64_t>(SizeInBytes(pairs[p].dtype));
    const int64_t step = kWindowBytes / size;
    for (int64_t first = 0; first < pairs[p].elements; first += step) {
      const int64_t count = std::min(step, pairs[p].elements - first);
      plan.stretches.push_back({p, first, count});
      task_bytes += count * size;
      const bool is_full = plan.stretches.size() - begin_of_task() >= kMostStretches;
      if (task_bytes >= kWindowBytes || is_full) end_task();
    }
  }
  end_task();
  return plan;
}

// The bytes of one side of the stretches of a task, which often lie one after the other: the
// window of one serves the next.
class SideReader {
 public:
  std::span<const std::byte> Read(const PassSide& side, DType dtype, int64_t first, int64_t count) {
    const int64_t size = static_cast<int64_t>(SizeInBytes(dtype));
    const int64_t bytes = count * size;
    if (side.file == nullptr) {
      buffer_.resize(static_cast<size_t>(bytes));
      side.source->Read(side.name, first, buffer_);
      return buffer_;
    }
    const int64_t offset = side.offset + first * size;
    const bool is_mapped =
        side.file == file_ && offset >= offset_ && offset + bytes <= offset_ + window_.size();
    if (!is_mapped) {
      window_ = {};
      // Untouched pages cost nothing.
      const int64_t rest = std::max<int64_t>(0, side.file->size() - offset);
      window_ = side.file->Map(offset, std::max(bytes, std::min(kSharedWindowBytes, rest)));
      file_ = side.file;
      offset_ = offset;
    }
    return {window_.data() + (offset - offset_), static_cast<size_t>(bytes)};
  }

 private:
  std::vector<std::byte> buffer_;
  const MappedFile* file_ = nullptr;
  int64_t offset_ = 0;
  MappedFile::Window window_;
};

struct TaskResult {
  std::vector<PassSummary> summaries;  // of the stretches
  std::exception_ptr failure;          // of the stretch behind them
};

TaskResult Compute(std::span<const PassPair> pairs, const TaskPlan& plan, const Task& task) {
  TaskResult result;
  result.summaries.reserve(task.stretch_count);
  SideReader expected;
  SideReader got;
  try {
    for (size_t i = 0; i < task.stretch_count; ++i) {
      const Stretch& stretch = plan.stretches[task.first_stretch + i];
      const PassPair& pair = pairs[stretch.pair];
      const auto want = expected.Read(pair.expected, pair.dtype, stretch.first, stretch.count);
      const auto have = got.Read(pair.got, pair.dtype, stretch.first, stretch.count);
      result.summaries.push_back(ComparePass(pair.dtype, want, have, pair.rule));
    }
  } catch (...) {
    // Thrown when its turn comes: the same error for any number of threads.
    result.failure = std::current_exception();
  }
  return result;
}

PassNan NanOf(NanPolicy policy) {
  switch (policy) {
    case NanPolicy::kFail:
      return PassNan::kFail;
    case NanPolicy::kEqual:
      return PassNan::kEqual;
    case NanPolicy::kEqualBits:
      return PassNan::kEqualBits;
  }
  return PassNan::kFail;
}

}  // namespace

std::optional<PassRule> PassRuleOf(const ToleranceRule& tolerance, const SpecialPolicy& special) {
  PassRule rule;
  rule.nan = NanOf(special.accuracy);
  if (std::holds_alternative<ExactRule>(tolerance)) {
    rule.kind = PassRule::Kind::kExact;
    rule.nan = NanOf(special.conformance);
  } else if (const auto* ulp = std::get_if<UlpRule>(&tolerance)) {
    rule.kind = PassRule::Kind::kUlp;
    // Integers of 64 bits may be told apart by a number that no double is; the judge does.
    if (ulp->ulps > (int64_t{1} << 53)) return std::nullopt;
    rule.ulps = ulp->ulps;
  } else if (const auto* abs_rel = std::get_if<AbsRelRule>(&tolerance)) {
    rule.kind = PassRule::Kind::kAbsRel;
    if (abs_rel->absolute_low != 0) return std::nullopt;
    rule.absolute = abs_rel->absolute;
    rule.relative = abs_rel->relative;
  } else {
    return std::nullopt;
  }
  return rule;
}

std::vector<PassSummary> RunFirstPass(std::span<const PassPair> pairs, int threads,
                                      const std::function<void()>& progress) {
  const TaskPlan plan = TaskPlanOf(pairs);
  std::vector<PassSummary> summaries(pairs.size());
  OrderedParallelFor(
      static_cast<int64_t>(plan.tasks.size()), threads,
      [&](int64_t index) { return Compute(pairs, plan, plan.tasks[static_cast<size_t>(index)]); },
      [&](int64_t index, TaskResult result) {
        const Task& task = plan.tasks[static_cast<size_t>(index)];
        for (size_t i = 0; i < result.summaries.size(); ++i) {
          const Stretch& stretch = plan.stretches[task.first_stretch + i];
          summaries[stretch.pair].Merge(result.summaries[i]);
        }
        if (result.failure) std::rethrow_exception(result.failure);
        if (progress) progress();
      });
  std::set<const MappedFile*> files;
  for (const PassPair& pair : pairs) {
    for (const PassSide* side : {&pair.expected, &pair.got}) {
      if (side->file != nullptr && files.insert(side->file).second) side->file->ThrowIfDamaged();
    }
  }
  return summaries;
}

}  // namespace kvcheck
