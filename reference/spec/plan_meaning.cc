#include "reference/spec/plan_meaning.h"

#include <fmt/format.h>

#include "reference/spec/error.h"
#include "reference/spec/plan.h"
#include "reference/spec/text.h"

namespace kvcheck {
namespace {

std::string CutText(const OperandCut& cut) {
  const char* type = cut.type == OperandType::kTf32   ? "TF32"
                     : cut.type == OperandType::kBf16 ? "bf16"
                                                      : "f16";
  if (cut.passes == 1) {
    return fmt::format("{} to {}", cut.toward_zero ? "cut" : "rounded", type);
  }
  return fmt::format("split into {} parts, {} products each", type, cut.passes);
}

std::string OperandsText(const Plan& plan) {
  if (plan.qk_operands == plan.pv_operands) {
    return fmt::format("operands of q.k and P.V were {}", CutText(*plan.qk_operands));
  }
  const auto& cut = plan.qk_operands ? plan.qk_operands : plan.pv_operands;
  return fmt::format("operands of {} were {}", plan.qk_operands ? "q.k" : "P.V", CutText(*cut));
}

// Of a sum, only what makes a bound larger is advised: its type, and truncation.
std::string SumText(std::string_view what, const SumPlan& sum) {
  if (sum.accumulator.toward_zero) return fmt::format("{} were summed toward zero", what);
  return fmt::format("{} were summed in {}, one term after the other", what,
                     ShortName(sum.accumulator.dtype));
}

}  // namespace

std::string MeaningOf(std::string_view change) {
  const std::string_view field = change.substr(0, change.find(' '));
  Plan plan;
  try {
    plan = ParsePlan(field);
  } catch (const Error&) {
    return "";
  }
  const auto stored = [](const char* what, DType type) {
    return fmt::format("{} {}", what, ShortName(type));
  };
  if (plan.p) return stored("P were rounded to", *plan.p);
  if (plan.scores) return stored("scores were stored in", *plan.scores);
  if (plan.partial)
    return stored("partial results of ranges of keys were stored in", *plan.partial);
  if (plan.merge_weights) {
    return stored("the weights of partial results were stored in", *plan.merge_weights);
  }
  if (plan.through) return stored("outputs were rounded before they are stored, to", *plan.through);
  if (plan.prescale_dtype) {
    return stored("q were multiplied by the scale and rounded before q.k, to",
                  *plan.prescale_dtype);
  }
  if (plan.qk_operands || plan.pv_operands) return OperandsText(plan);
  if (plan.qk) return SumText("q.k", *plan.qk);
  if (plan.pv) return SumText("P.V", *plan.pv);
  if (plan.l) return SumText("the denominator", *plan.l);
  if (plan.exp_error) return "exp erred by " + PrintReal(*plan.exp_error) + " of its value";
  if (plan.fixed_q) return "queries met the codes of K as integers times a step";
  if (plan.fixed_p) return "weights met the codes of V as integers times a step";
  if (plan.dequantize == DequantizeKind::kRotated) {
    return "rows stayed in the basis in which they are stored";
  }
  return fmt::format("the plan said {}", field);
}

}  // namespace kvcheck
