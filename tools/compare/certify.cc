#include "tools/compare/certify.h"

#include <memory>
#include <utility>

#include "reference/judge/tensor_source.h"
#include "tools/compare/first_pass_run.h"

namespace kvcheck {
namespace {

PassSide SideOf(const ComparePair& pair, const PassFile& file, const std::string& path,
                const TensorView& view) {
  const ObjectRecord& record = DatasetRecord(file.locked.source, path);
  PassSide side;
  if (record.data_offset && !pair.part && !pair.cast) {
    side.file = &file.bytes;
    side.offset = *record.data_offset;
  } else {
    side.source = &view;
    side.name = kTensorName;
  }
  return side;
}

Verdict VerdictOf(const ComparePair& pair, const TensorView& gold, const PassSummary& summary) {
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
  AddRuleSource(pair, &output);
  Verdict verdict;
  verdict.outputs.push_back(std::move(output));
  return verdict;
}

}  // namespace

std::vector<std::optional<Verdict>> CertifyPairs(const std::vector<ComparePair>& pairs,
                                                 const PassFile& gold, const PassFile& got,
                                                 int threads,
                                                 const std::function<void()>& between) {
  std::vector<PassPair> passes;
  std::vector<std::unique_ptr<PairTensors>> tensors;
  std::vector<size_t> index;  // of each pass, in pairs
  for (size_t i = 0; i < pairs.size(); ++i) {
    const ComparePair& pair = pairs[i];
    if (pair.standing != PairStanding::kComparable || pair.elements == 0 ||
        !pair.names.triplet.empty()) {
      continue;
    }
    const auto rule = PassRuleOf(pair.rule.tolerance, pair.rule.Special());
    if (!rule) continue;
    tensors.push_back(std::make_unique<PairTensors>(pair, gold.locked, got.locked));
    const PairTensors& both = *tensors.back();
    passes.push_back({SideOf(pair, gold, pair.names.name, both.gold()),
                      SideOf(pair, got, pair.names.got, both.got()), both.gold().info().dtype,
                      pair.elements, *rule});
    index.push_back(i);
  }
  std::vector<std::optional<Verdict>> verdicts(pairs.size());
  const std::vector<PassSummary> summaries = RunFirstPass(passes, threads, between);
  for (size_t p = 0; p < passes.size(); ++p) {
    if (!summaries[p].ProvesPass()) continue;
    verdicts[index[p]] = VerdictOf(pairs[index[p]], tensors[p]->gold(), summaries[p]);
  }
  return verdicts;
}

}  // namespace kvcheck
