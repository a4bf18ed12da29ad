#include "tools/compare/bless.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "golden/plain_writer.h"
#include "golden/reader.h"
#include "golden/tensor_file.h"
#include "reference/judge/special_values.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

std::string TypeText(const LockedFile& file, const std::string& path) {
  const ObjectRecord& record = file.source.index().objects.at(path);
  if (!record.problem.empty()) return "(" + record.problem + ")";
  return fmt::format("{} {}", Name(record.dtype), ToString(record.shape));
}

void CheckReadable(const ComparePair& pair, const LockedFile& got) {
  const std::string& problem = got.source.index().objects.at(pair.names.got).problem;
  if (problem.empty()) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} of {} cannot be read and so not be written ({}); --exclude it",
                          pair.names.got, got.source.path(), problem),
              "--bless");
}

}  // namespace

void CheckBlessPath(const BlessOptions& options, const std::string& gold_path) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::symlink_status(options.path, ignored))) return;
  if (!std::filesystem::equivalent(options.path, gold_path, ignored)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} exists and is not GOLD: choose another name, or remove it first",
                            options.path),
                "--bless");
  }
  if (FormatOfFile(gold_path) != TensorFileFormat::kHdf5) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{} is no HDF5 file, and --bless writes HDF5: choose another name",
                            options.path),
                "--bless");
  }
  if (options.is_selection) {
    throw Error(ErrorCode::kUsage,
                "GOLD would lose the tensors that are not selected: choose another name, or drop "
                "--include and --exclude",
                "--bless");
  }
}

std::string DescribeChange(const ComparePair& pair, LockedFile& gold, LockedFile& got,
                           const JudgeCall& judge) {
  const std::string& name = pair.names.name;
  switch (pair.standing) {
    case PairStanding::kMissing:
      return fmt::format("removed  {}  {}", name, TypeText(gold, name));
    case PairStanding::kExtra:
      return fmt::format("added    {}  {}", name, TypeText(got, pair.names.got));
    case PairStanding::kUnreadable:
      CheckReadable(pair, got);
      [[fallthrough]];
    case PairStanding::kUnlike:
      return fmt::format("changed  {}  {} -> {}", name, TypeText(gold, name),
                         TypeText(got, pair.names.got));
    case PairStanding::kComparable:
      break;
  }
  ComparePair exact = pair;
  exact.rule = TensorRule();
  const Verdict verdict = JudgePair(exact, gold, got, EmptyPairs::kPass, judge);
  if (verdict.outcome == Outcome::kPass || verdict.outputs.empty()) return "";
  const OutputVerdict& output = verdict.outputs.front();
  if (output.counts.failed == 0) return "";
  std::string text = fmt::format("changed  {}  {} of {} elements", name, output.counts.failed,
                                 output.counts.elements);
  if (output.metrics.finite > 0) {
    text += fmt::format(", at most by {:.3g} ({:.3g} ulp)", output.metrics.max_abs,
                        output.metrics.max_ulp);
  }
  for (const PairKind kind :
       {PairKind::kObservedNan, PairKind::kExpectedNan, PairKind::kObservedInfinity,
        PairKind::kExpectedInfinity, PairKind::kOppositeInfinities}) {
    if (const int64_t count = output.special.Of(kind); count > 0) {
      text += fmt::format(", {}: {}", Name(kind), count);
    }
  }
  return text;
}

void WriteBlessed(const BlessOptions& options, const std::vector<ComparePair>& pairs,
                  LockedFile& gold, LockedFile& got, const std::function<void()>& between) {
  for (const ComparePair& pair : pairs) {
    if (!pair.names.got.empty()) CheckReadable(pair, got);
  }
  PlainWriter writer(options.path);
  std::vector<std::byte> block;
  for (const ComparePair& pair : pairs) {
    if (pair.names.got.empty()) continue;
    const ObjectRecord& record = DatasetRecord(got.source, pair.names.got);
    // GOLD's names of axes outlive a dump that has none.
    Shape shape = record.shape;
    if (pair.standing == PairStanding::kComparable) {
      shape = PairTensors(pair, gold, got).gold().info().shape;
    }
    writer.Begin(pair.names.name, record.dtype, shape);
    const int64_t elements = record.shape.ElementCount();
    const int64_t step = BlockElements(record.dtype);
    for (int64_t first = 0; first < elements; first += step) {
      between();
      const int64_t count = std::min(step, elements - first);
      block.resize(static_cast<size_t>(count) * SizeInBytes(record.dtype));
      const std::lock_guard<std::mutex> lock(got.mutex);
      got.source.ReadElements(pair.names.got, first, count, block.data());
      writer.Append(block);
    }
  }
  writer.SetAttribute("/", kBlessReason, options.reason);
  writer.SetAttribute("/", kBlessCommand, options.command);
  between();
  writer.SetAttribute("/", kBlessGoldHash, ContentHashOf(gold.source));
  between();
  writer.SetAttribute("/", kBlessGotHash, ContentHashOf(got.source));
  writer.Finish();
}

}  // namespace kvcheck
