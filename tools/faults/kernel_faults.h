// The catalogue of kernel faults: each is the small kernel with exactly one named step replaced:
// memory, indices, threads, what an earlier call left behind. What public report a fault stands for
// is in catalogue.md beside this file.

#ifndef TOOLS_FAULTS_KERNEL_FAULTS_H_
#define TOOLS_FAULTS_KERNEL_FAULTS_H_

#include <span>
#include <string_view>

#include "tools/faults/fault.h"
#include "tools/faults/small_kernel.h"

namespace kvcheck {

struct KernelFault : FaultText {
  KernelSteps steps;
};

std::span<const KernelFault> KernelFaults();
// nullptr when there is none of this id.
const KernelFault* FindKernelFault(std::string_view id);

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_KERNEL_FAULTS_H_
