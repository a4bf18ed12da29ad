// All faults as one table, what a check is, and the reports of the catalogue for which no fault can
// stand.

#ifndef TOOLS_FAULTS_FAULT_TABLE_H_
#define TOOLS_FAULTS_FAULT_TABLE_H_

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/spec/implementation.h"
#include "tools/faults/fault.h"

namespace kvcheck {

struct Fault {
  FaultKind kind = FaultKind::kCache;
  const FaultText* text = nullptr;
};

// Whether answers are tensors, and not operations that are judged one by one.
inline bool IsOfTensors(FaultKind kind) {
  return kind != FaultKind::kCache && kind != FaultKind::kPrefix;
}

// "cache", "attention", "codec", "kernel", "prefix".
std::string_view Name(FaultKind kind);
// The kind of the cases that show it: kernels are asked about attention.
std::string_view CaseKindOf(FaultKind kind);

// By kind, in the order of the kinds' own tables; an id is there once.
const std::vector<Fault>& AllFaults();
const Fault* FindFault(std::string_view id);

// The words between separators: SplitWords("a | b", " | ").
std::vector<std::string_view> SplitWords(std::string_view text, std::string_view separator);

// What of a signature names the check: without the hint that may follow ": ", and of a format its
// family alone. "codec encode affine:4 codes bytes" gives "codec encode affine codes bytes", blocks
// of ggml give "ggml", plain formats "plain".
std::string CheckOf(std::string_view signature);
// Whether the fault's line names the check.
bool NamesCheck(const FaultText& fault, std::string_view check);
// Whether its data may show nothing, which the verdict must say: a fault that is caught where the
// case is MISTRUSTED.
bool IsCaughtByMistrust(const FaultText& fault);

// An implementation of attention or codec cases with the fault; nullptr for an unknown id and for
// faults of caches, which tools/faults/cache_faults.h makes.
std::unique_ptr<Implementation> MakeFaulty(std::string_view id, const Plan& plan,
                                           const Profile& profile);
// The same without the fault, where simulated and reference do not say it: the small kernel.
inline constexpr std::string_view kSmallKernelName = "small_kernel";

// An entry of the catalogue that no case of kvcheck can express yet.
struct UncoveredReport {
  std::string_view id;
  std::string_view reason;
};
std::span<const UncoveredReport> UncoveredReports();

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_FAULT_TABLE_H_
