// A small attention kernel as engines write them: K and V in pages that a block table names,
// channels in lanes of eight, an online softmax page by page, two ranges of keys on two threads,
// merged. It is right, and says how it computes; a fault replaces one of its steps. What a
// definition cannot show, memory, indices, threads and what an earlier call left behind, shows
// here.
//
// It answers attention over plain f32, f16 and bf16 under any mask, of one or two batch rows,
// without softcap and sinks, and declines the rest.

#ifndef TOOLS_FAULTS_SMALL_KERNEL_H_
#define TOOLS_FAULTS_SMALL_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "reference/spec/implementation.h"

namespace kvcheck {

// Everything as it should be where nothing is set.
struct KernelSteps {
  // Channels of a row of `channels` that the lanes take, those that are written, floats from one
  // slot of a page to the next.
  size_t (*summed_channels)(size_t channels) = nullptr;
  size_t (*written_channels)(size_t channels) = nullptr;
  size_t (*slot_stride)(size_t k_dim, size_t v_dim) = nullptr;
  // A distance in bytes, as an index type holds it.
  int64_t (*offset)(int64_t bytes) = nullptr;
  bool far_batches = false;  // batch rows lie 2^31 bytes apart, in memory that is never touched
  // The physical page, from 1, of logical page i of n; 0: none, its keys are skipped.
  int64_t (*page)(int64_t i, int64_t n) = nullptr;
  int64_t (*first_page_of_batch)(int64_t batch) = nullptr;  // whose first page a batch row reads
  int64_t (*pages)(int64_t tokens) = nullptr;               // pages that are walked over
  bool pages_moved = false;                                 // two pages changed places
  bool skips_hidden = true;       // else a hidden slot takes part with weight 0
  bool skips_empty_pages = true;  // else a page without a visible key moves the maximum
  bool clears_sums = true;        // of the row before
  bool clears_weights = true;     // of the page before
  bool clears_total = true;       // of the call before
  float first_maximum = -std::numeric_limits<float>::infinity();
  bool joins_safely = true;  // else both threads read a total before either writes it
  bool ranges_by_threads = false;
};

class SmallKernel : public Implementation {
 public:
  // Healthy where steps has its defaults.
  SmallKernel(std::string_view name, const KernelSteps& steps) : name_(name), steps_(steps) {}

  // Its plan and profile, as texts.
  static std::string_view StatedPlan();

  Capabilities GetCapabilities() const override;
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override;
  bool SetThreads(int threads) override {
    threads_ = threads;
    return true;
  }

 private:
  std::string name_;
  KernelSteps steps_;
  int threads_ = 2;
  float last_total_ = 0;
};

}  // namespace kvcheck

#endif  // TOOLS_FAULTS_SMALL_KERNEL_H_
