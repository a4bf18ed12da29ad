#include "tools/corridor/implementations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "optimized/attention/attention_implementation.h"
#include "optimized/formats/codec_implementation.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/corridor/adapters.h"
#include "tools/corridor/evaluate_case.h"
#include "tools/faults/fault_table.h"
#include "tools/faults/kernel_faults.h"
#include "tools/process/remote_implementation.h"

namespace kvcheck {
namespace {

constexpr std::string_view kSimulatedPrefix = "simulated:";
constexpr std::string_view kFaultPrefix = "fault:";
constexpr std::string_view kOptimized = "optimized";
constexpr std::string_view kPortable = "optimized:portable";

// The codecs and the attention under one name.
class OptimizedBoth : public Implementation {
 public:
  explicit OptimizedBoth(const Profile& profile) : codec_(profile), attention_(profile, false) {}
  Capabilities GetCapabilities() const override {
    Capabilities capabilities = attention_.GetCapabilities();
    capabilities.kinds.emplace_back("codec");
    return capabilities;
  }
  RunOutcome Run(const Case& c, const TensorMap& inputs, Sink& sink) override {
    attends_ = std::holds_alternative<AttentionCase>(c);
    return attends_ ? attention_.Run(c, inputs, sink) : codec_.Run(c, inputs, sink);
  }
  const Plan* AnswerPlan() const override { return attends_ ? attention_.AnswerPlan() : nullptr; }
  const Profile* AnswerProfile() const override {
    return attends_ ? attention_.AnswerProfile() : nullptr;
  }

 private:
  OptimizedCodec codec_;
  OptimizedAttention attention_;
  bool attends_ = false;
};

void Give(const std::string& name, const Tensor& tensor, Sink* sink) {
  sink->Declare(name, tensor.dtype, tensor.shape);
  sink->Write(name, 0, tensor.bytes);
}

}  // namespace

Capabilities ReferenceCodec::GetCapabilities() const {
  return {"reference", "self check", {"codec"}, {}, profile_};
}

RunOutcome ReferenceCodec::Run(const Case& c, const TensorMap& inputs, Sink& sink) {
  const auto* codec = std::get_if<CodecCase>(&c);
  if (codec == nullptr) return RunOutcome::kUnsupported;
  TensorMap encoded;
  const TensorMap* stored = &inputs;
  if (codec->direction != CodecDirection::kDecode) {
    encoded = EncodeRows(codec->format, profile_, Get(inputs, "x"), inputs);
    stored = &encoded;
  }
  if (codec->direction == CodecDirection::kEncode) {
    for (const auto& [name, spec] : OutputSpecs(c)) Give(name, encoded.at(name), &sink);
    return RunOutcome::kAnswered;
  }
  const TensorSpec spec = OutputSpecs(c).at("y");
  const EncodedRows rows = CodecRows(codec->format, *stored);
  sink.Declare("y", spec.dtype, spec.shape);
  // Blocks of about 2^20 elements.
  const int64_t block = std::max<int64_t>(1, (int64_t{1} << 20) / codec->head_dim);
  for (int64_t row = 0; row < codec->rows; row += block) {
    const int64_t count = std::min(block, codec->rows - row);
    const std::vector<double> values = DecodeToRowType(codec->format, profile_, rows, row, count);
    std::vector<std::byte> bytes(values.size() * SizeInBytes(spec.dtype));
    EncodeFrom(values, spec.dtype, bytes.data());
    sink.Write("y", row * codec->head_dim, bytes);
  }
  return RunOutcome::kAnswered;
}

std::unique_ptr<Implementation> MakeImplementation(const std::string& text, const Plan& plan,
                                                   const Profile& profile,
                                                   const RemoteLimits& limits) {
  if (text == "simulated") return std::make_unique<SimulatedKernel>(plan, profile);
  if (text.starts_with(kSimulatedPrefix)) {
    return std::make_unique<SimulatedKernel>(ParsePlan(text.substr(kSimulatedPrefix.size())),
                                             profile);
  }
  if (text == "reference") return std::make_unique<ReferenceCodec>(profile);
  if (text == kOptimized) return std::make_unique<OptimizedBoth>(profile);
  if (text == kPortable) return std::make_unique<OptimizedAttention>(profile, true);
  if (text == kSmallKernelName) return std::make_unique<SmallKernel>(text, KernelSteps());
  if (text.starts_with(kFaultPrefix)) {
    const std::string id = text.substr(kFaultPrefix.size());
    std::unique_ptr<Implementation> faulty = MakeFaulty(id, plan, profile);
    if (faulty != nullptr) return faulty;
    std::vector<std::string> known;
    for (const Fault& fault : AllFaults()) {
      if (fault.kind != FaultKind::kCache) known.emplace_back(fault.text->id);
    }
    throw Error(
        ErrorCode::kUsage,
        fmt::format("there is no fault '{}' of attention, codecs or kernels{}; known: {}",
                    Shortened(id, kMostNameShown), DidYouMean(id, known), fmt::join(known, " ")),
        "--impl");
  }
  if (AdapterCommand(text)) {
    return std::make_unique<RemoteImplementation>(AdapterProcess(text, limits), plan, profile);
  }
  std::vector<std::string> known = {"simulated", "small_kernel", "optimized:portable", "optimized",
                                    "reference"};
  for (const std::string& name : AdapterNames()) known.push_back(name);
  throw Error(
      ErrorCode::kUsage,
      fmt::format("there is no implementation '{}'{}; known: simulated, simulated:PLAN, "
                  "small_kernel, optimized:portable (attention), optimized, reference (codec), "
                  "fault:ID; {}",
                  Shortened(text, kMostNameShown), DidYouMean(text, known), AdaptersText()),
      "--impl");
}

StatedAnswer StatedBy(const std::string& name, std::string_view kind, const RemoteLimits& limits) {
  StatedAnswer stated;
  if (name.starts_with(kSimulatedPrefix)) stated.plan = name.substr(kSimulatedPrefix.size());
  if (name == kOptimized && kind == "codec") stated.profile = OptimizedCodec::StatedProfile();
  if ((name == kOptimized || name == kPortable) && kind == "attention") {
    stated.plan = Print(OptimizedAttention::StatedPlan(name == kPortable));
    stated.profile = OptimizedAttention::StatedProfile();
  }
  const bool kernel = name == kSmallKernelName ||
                      (name.starts_with(kFaultPrefix) &&
                       FindKernelFault(std::string_view(name).substr(kFaultPrefix.size())));
  if (kernel) stated.plan = SmallKernel::StatedPlan();
  if (AdapterCommand(name)) {
    const Greeting& greeting = GreetingOf(name, limits);
    stated.plan = CommandPlan(greeting.plan);
    stated.profile = greeting.profile;
  }
  return stated;
}

std::string DefaultImplementation(const Case& c) {
  if (!std::holds_alternative<TensorCase>(c)) return std::string(kOptimized);
  throw Error(ErrorCode::kUsage,
              "a tensor case compares stored tensors: give them with --data FILE#NAME, or use "
              "kvcheck compare --case",
              "run");
}

}  // namespace kvcheck
