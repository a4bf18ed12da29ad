#include "tools/compare/certify.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "reference/judge/tensor_source.h"
#include "tools/compare/first_pass_run.h"

namespace kvcheck {
namespace {

// nullopt where the elements do not lie in the file as they are compared.
std::optional<PassSide> MappedSide(const ComparePair& pair, const PassFile& file,
                                   const std::string& path) {
  const ObjectRecord& record = DatasetRecord(file.locked.source, path);
  if (file.bytes == nullptr || !record.data_offset || pair.part || pair.cast) return std::nullopt;
  PassSide side;
  side.file = file.bytes;
  side.offset = *record.data_offset;
  return side;
}

PassSide ReadSide(const TensorView& view) {
  PassSide side;
  side.source = &view;
  side.name = kTensorName;
  return side;
}

}  // namespace

Verdict CertifiedVerdict(const ComparePair& pair, LockedFile& gold_file, LockedFile& got_file,
                         const PassSummary& summary) {
  const PairTensors tensors(pair, gold_file, got_file);
  const TensorView& gold = tensors.gold();
  OutputVerdict output;
  output.name = kTensorName;
  const bool exact = std::holds_alternative<ExactRule>(pair.rule.tolerance);
  output.rule = exact ? "bytes equal" : Print(pair.rule.tolerance);
  output.dtype = gold.info().dtype;
  output.shape = ToString(gold.info().shape);
  output.counts.elements = summary.elements;
  output.counts.judged = summary.elements;
  const std::pair<PairKind, int64_t> kinds[] = {
      {PairKind::kBothNan, summary.both_nan},
      {PairKind::kSameInfinity, summary.same_infinity},
      {PairKind::kZerosOfTwoSigns, summary.zeros_of_two_signs}};
  for (const auto& [kind, count] : kinds) {
    output.special.count[static_cast<size_t>(kind)] = count;
  }
  output.special_lines =
      Describe(output.special, exact ? Claim::kConformance : Claim::kAccuracy, pair.rule.Special());
  output.basic_metrics = true;
  output.metrics.finite = summary.FinitePairs();
  output.metrics.max_abs = summary.max_abs;
  output.metrics.max_rel = summary.max_rel;
  output.metrics.max_ulp = summary.max_ulp;
  output.metrics.rms_abs = summary.RmsAbs();
  // As the judge has it.
  if (!summary.any_nonzero) {
    output.warnings.push_back("every judged value is 0, expected and observed");
  }
  if (auto few = FewFiniteWarning(summary.elements, output.special)) {
    output.warnings.push_back(std::move(*few));
  }
  AddRuleSource(pair, &output);
  Verdict verdict;
  verdict.outputs.push_back(std::move(output));
  return verdict;
}

const PassSummary* Certificates::Of(size_t pair) const {
  const auto found = std::lower_bound(index_.begin(), index_.end(), pair);
  if (found == index_.end() || *found != pair) return nullptr;
  const PassSummary& summary = summaries_[static_cast<size_t>(found - index_.begin())];
  return summary.ProvesPass() ? &summary : nullptr;
}

Certificates CertifyPairs(const std::vector<ComparePair>& pairs, const PassFile& gold,
                          const PassFile& got, int threads, const std::function<void()>& between) {
  std::vector<PassPair> passes;
  std::vector<std::unique_ptr<PairTensors>> tensors;
  std::vector<size_t> index;  // of each pass, in pairs
  passes.reserve(pairs.size());
  index.reserve(pairs.size());
  for (size_t i = 0; i < pairs.size(); ++i) {
    const ComparePair& pair = pairs[i];
    if (pair.standing != PairStanding::kComparable || pair.elements == 0 ||
        !pair.names.triplet.empty() || pair.stated) {
      continue;
    }
    const auto rule = PassRuleOf(pair.rule.tolerance, pair.rule.Special());
    if (!rule) continue;
    std::optional<PassSide> want = MappedSide(pair, gold, pair.names.name);
    std::optional<PassSide> have = MappedSide(pair, got, pair.names.got);
    if (!want || !have) {
      tensors.push_back(std::make_unique<PairTensors>(pair, gold.locked, got.locked));
      if (!want) want = ReadSide(tensors.back()->gold());
      if (!have) have = ReadSide(tensors.back()->got());
    }
    const DType own = DatasetRecord(gold.locked.source, pair.names.name).dtype;
    passes.push_back(
        {std::move(*want), std::move(*have), pair.cast.value_or(own), pair.elements, *rule});
    index.push_back(i);
  }
  return {RunFirstPass(passes, threads, between), std::move(index)};
}

}  // namespace kvcheck
