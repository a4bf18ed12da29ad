// The catalogue of codec faults: each is the reference codec with exactly one named step replaced.
// What public report a fault stands for is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_CODEC_FAULTS_H_
#define TOOLS_FAULTS_CODEC_FAULTS_H_

#include <span>
#include <string>
#include <string_view>

#include "tools/faults/codec_rules.h"
#include "tools/faults/fault.h"

namespace kvcheck {

struct CodecFault : FaultText {
  CodecRules rules;
};

// Of affine codes and of plain types.
std::span<const CodecFault> CodecFaults();
// Of MX and NVFP4 (small_float_faults.cc).
std::span<const CodecFault> SmallFloatFaults();
// Of codes with a scale per token, head or tensor (scaled_faults.cc).
std::span<const CodecFault> ScaledFaults();
// Of ggml's blocks (block_faults.cc).
std::span<const CodecFault> BlockFaults();
// Of turboquant (turboquant_faults.cc).
std::span<const CodecFault> TurboquantFaults();
// Of its inner-product codec (turboquant_prod_faults.cc).
std::span<const CodecFault> TurboquantProdFaults();
// Of codes per channel (channel_faults.cc).
std::span<const CodecFault> ChannelFaults();
// The stored plane of this name, or null where the format has none.
Tensor* FindPlane(TensorMap* stored, const std::string& plane);
// nullptr when there is none of this id.
const CodecFault* FindCodecFault(std::string_view id);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_CODEC_FAULTS_H_
