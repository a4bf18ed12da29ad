// The catalogue of codec faults: each is the reference codec with exactly one named step replaced.
// What public report a fault stands for is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_CODEC_FAULTS_H_
#define TOOLS_FAULTS_CODEC_FAULTS_H_

#include <span>
#include <string_view>

#include "tools/faults/codec_rules.h"
#include "tools/faults/fault.h"

namespace kvcheck {

struct CodecFault : FaultText {
  CodecRules rules;
};

std::span<const CodecFault> CodecFaults();
// Of ggml's blocks (block_faults.cc), in the same catalogue.
std::span<const CodecFault> BlockFaults();
// Of turboquant (turboquant_faults.cc).
std::span<const CodecFault> TurboquantFaults();
// Of codes per channel (channel_faults.cc).
std::span<const CodecFault> ChannelFaults();
// nullptr when there is none of this id.
const CodecFault* FindCodecFault(std::string_view id);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_CODEC_FAULTS_H_
