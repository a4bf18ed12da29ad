// What every fault says about itself, whatever its kind: an implementation that is right but for
// one replaced rule. The kinds are in cache_faults.h, attention_faults.h, codec_faults.h,
// kernel_faults.h and prefix_faults.h; all of them as one list, and the reports that no fault
// stands for, in fault_table.h. What the reports say is in catalogue.md.

#ifndef TOOLS_FAULTS_FAULT_H_
#define TOOLS_FAULTS_FAULT_H_

#include <cstdint>
#include <string_view>

namespace kvcheck {

enum class FaultKind : uint8_t {
  kCache,      // the model of the contract
  kAttention,  // the simulated kernel
  kCodec,      // the reference codec
  kKernel,     // a small kernel of its own, with memory, threads and indices
  kPrefix,     // the reference store of prefixes
};

struct FaultText {
  std::string_view id;           // "last_key_dropped"
  std::string_view rule;         // the rule that is replaced, as its kind names it
  std::string_view description;  // what is wrong, in one line
  // Entries of the catalogue that it stands for, with spaces between; the first names its property.
  std::string_view reports;
  std::string_view property;  // "P3"
  // The checks that may catch it, with " | " between (fault_table.h says what a check is).
  std::string_view checks;
  // The smallest case that is known to show it; of attention with its plan ("": the definition
  // written out in f32) and profile.
  std::string_view smallest;
  std::string_view plan = {};
  std::string_view profile = {};
};

// Smallest cases of several faults: one query, and one key or two.
inline constexpr std::string_view kOneKey =
    "attention hq=1 hkv=1 l=1 t=1 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1";
inline constexpr std::string_view kTwoKeys =
    "attention hq=1 hkv=1 l=1 t=2 d=1 q=f32 k=f32 v=f32 out=f32 scale=0.5 data=gauss:1";

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_FAULT_H_
