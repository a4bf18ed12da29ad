#include "tools/corridor/implementations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "optimized/attention/attention_implementation.h"
#include "optimized/cache/cache_factory.h"
#include "optimized/formats/codec_implementation.h"
#include "optimized/prefix/optimized_prefix.h"
#include "reference/attention/simulated_kernel.h"
#include "reference/cache/model_cache.h"
#include "reference/formats/codec.h"
#include "reference/numerics/convert.h"
#include "reference/prefix/block_memory.h"
#include "reference/prefix/model_store.h"
#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/spec/text.h"
#include "tools/corridor/adapters.h"
#include "tools/faults/cache_faults.h"
#include "tools/faults/prefix_faults.h"
#include "tools/faults/small_kernel.h"
#include "tools/prefix_disk/prefix_disk.h"
#include "tools/process/remote_cache.h"
#include "tools/process/remote_implementation.h"
#include "tools/process/remote_prefix.h"

namespace kvcheck {
namespace {

constexpr std::string_view kFaultPrefix = "fault:";

[[noreturn]] void ThrowNoFault(std::string_view what, std::string_view of, const std::string& id,
                               const std::vector<std::string>& known) {
  throw Error(ErrorCode::kUsage,
              fmt::format("there is no {} '{}'{}{}; known: {}", what, Shortened(id, kMostNameShown),
                          of, DidYouMean(id, known), fmt::join(known, " ")),
              "--impl");
}

std::unique_ptr<Implementation> MakeFaultOfCases(const MakeRequest& request) {
  const Fault* fault = FindFault(request.parameter);
  if (fault != nullptr && IsOfTensors(fault->kind)) {
    return MakeFaulty(request.parameter, request.plan, request.profile);
  }
  std::vector<std::string> known;
  for (const Fault& other : AllFaults()) {
    if (IsOfTensors(other.kind)) known.emplace_back(other.text->id);
  }
  ThrowNoFault("fault", " of attention, codecs or kernels", request.parameter, known);
}

std::unique_ptr<CacheFactory> MakeFaultOfCaches(const MakeRequest& request) {
  const CacheFault* fault = FindCacheFault(request.parameter);
  if (fault != nullptr) return std::make_unique<ModelFactory>(fault->rules(), request.name);
  std::vector<std::string> known;
  for (const CacheFault& other : CacheFaults()) known.emplace_back(other.id);
  ThrowNoFault("cache fault", "", request.parameter, known);
}

std::unique_ptr<Implementation> MakeRemoteCases(const MakeRequest& request) {
  return std::make_unique<RemoteImplementation>(AdapterProcess(request.name, request.limits),
                                                request.plan, request.profile);
}

std::unique_ptr<CacheFactory> MakeRemoteCaches(const MakeRequest& request) {
  if (!GreetingOf(request.name, request.limits).Has(Name(request.kind))) {
    RefuseImplementation(request.kind, request.name);
  }
  return std::make_unique<RemoteCacheFactory>(AdapterProcess(request.name, request.limits));
}

std::unique_ptr<PrefixImplementation> MakeFaultOfPrefixes(const MakeRequest& request) {
  const PrefixFault* fault = FindPrefixFault(request.parameter);
  if (fault != nullptr) return std::make_unique<ModelStore>(fault->rules(), request.name);
  std::vector<std::string> known;
  for (const PrefixFault& other : PrefixFaults()) known.emplace_back(other.id);
  ThrowNoFault("prefix fault", "", request.parameter, known);
}

std::unique_ptr<PrefixImplementation> MakeRemotePrefixes(const MakeRequest& request) {
  const Greeting& greeting = GreetingOf(request.name, request.limits);
  if (!greeting.Has(Name(request.kind))) RefuseImplementation(request.kind, request.name);
  auto remote = std::make_unique<RemotePrefix>(AdapterProcess(request.name, request.limits));
  if (!greeting.ids_alone) return remote;
  return std::make_unique<BlockMemory>(std::move(remote));
}

// A table of makers by kind, from what there is.
KindTable<Maker> Makers(Maker attention, Maker codec, Maker caches, Maker prefixes = {}) {
  KindTable<Maker> make;
  make[CaseKind::kPrefix] = std::move(prefixes);
  make[CaseKind::kAttention] = std::move(attention);
  make[CaseKind::kCodec] = std::move(codec);
  make[CaseKind::kCache] = std::move(caches);
  return make;
}

template <typename F>
Maker OfCases(F make) {
  return MakeCases([make](const MakeRequest& request) -> std::unique_ptr<Implementation> {
    return make(request);
  });
}

template <typename F>
Maker OfCaches(F make) {
  return MakeCaches([make](const MakeRequest& request) -> std::unique_ptr<CacheFactory> {
    return make(request);
  });
}

template <typename F>
Maker OfPrefixes(F make) {
  return MakePrefixes([make](const MakeRequest& request) -> std::unique_ptr<PrefixImplementation> {
    return make(request);
  });
}

constexpr Maker (*kNone)() = [] { return Maker(); };

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

std::vector<ImplementationRow> RowsOfThisProgram() {
  using Request = const MakeRequest&;
  std::vector<ImplementationRow> rows;
  rows.push_back(
      {"optimized", "", "kvcheck's own", "",
       Makers(
           OfCases([](Request r) {
             return std::make_unique<OptimizedAttention>(r.profile, /*portable=*/false);
           }),
           OfCases([](Request r) { return std::make_unique<OptimizedCodec>(r.profile); }),
           OfCaches([](Request) { return std::make_unique<optimized::OptimizedCacheFactory>(); }),
           OfPrefixes([](Request) {
             return std::make_unique<optimized::OptimizedPrefix>(MakePrefixDisk);
           }))});
  rows.push_back({"optimized:portable", "", "the same with the same bits on every instruction set",
                  "",
                  Makers(OfCases([](Request r) {
                           return std::make_unique<OptimizedAttention>(r.profile,
                                                                       /*portable=*/true);
                         }),
                         kNone(), kNone())});
  rows.push_back(
      {"simulated", "", "the definition under the plan that judges it, a check of itself",
       "the definition",
       Makers(
           OfCases([](Request r) { return std::make_unique<SimulatedKernel>(r.plan, r.profile); }),
           kNone(), kNone())});
  rows.push_back({"simulated:", "PLAN", "the definition under another plan", "",
                  Makers(OfCases([](Request r) {
                           return std::make_unique<SimulatedKernel>(ParsePlan(r.parameter),
                                                                    r.profile, AttentionRules{},
                                                                    /*states_plan=*/true);
                         }),
                         kNone(), kNone())});
  rows.push_back({std::string(kSmallKernelName), "", "the kernel whose steps faults replace", "",
                  Makers(OfCases([](Request r) {
                           return std::make_unique<SmallKernel>(r.name, KernelSteps());
                         }),
                         kNone(), kNone())});
  rows.push_back(
      {"reference", "", "the reference's own encoder and decoder, a check of itself", "the format",
       Makers(kNone(),
              OfCases([](Request r) { return std::make_unique<ReferenceCodec>(r.profile); }),
              kNone())});
  rows.push_back(
      {"model", "", "the model of the contract, a check of itself", "the contract",
       Makers(kNone(), kNone(), OfCaches([](Request) { return std::make_unique<ModelFactory>(); }),
              OfPrefixes([](Request) { return std::make_unique<ModelStore>(); }))});
  rows.push_back({"model:", "CACHE_PROFILE", "the model of a cache that states this profile",
                  "the contract", Makers(kNone(), kNone(), OfCaches([](Request r) {
                                           CacheRules rules;
                                           rules.profile = ParseCacheProfile(r.parameter);
                                           rules.conventions = r.profile;
                                           return std::make_unique<ModelFactory>(
                                               rules, fmt::format("model:{}", r.parameter));
                                         }))});
  rows.push_back({std::string(kFaultPrefix), "ID", "with a fault (kvcheck faults list)", "",
                  Makers(OfCases(MakeFaultOfCases), OfCases(MakeFaultOfCases),
                         OfCaches(MakeFaultOfCaches), OfPrefixes(MakeFaultOfPrefixes))});
  return rows;
}

ImplementationRow RowOfProcesses() {
  return {"", "",
          "an adapter's name; a command line, with a blank or a slash, of a process that speaks "
          "the protocol of tools/process/protocol.md: it is run, so never take one from somebody "
          "else unread",
          "",
          Makers(OfCases(MakeRemoteCases), OfCases(MakeRemoteCases), OfCaches(MakeRemoteCaches),
                 OfPrefixes(MakeRemotePrefixes))};
}

std::string HealthyName(FaultKind kind) {
  constexpr std::string_view kNames[] = {"model", "simulated", "reference", kSmallKernelName,
                                         "model"};
  return std::string(kNames[static_cast<size_t>(kind)]);
}

std::string FaultyName(const Fault& fault) {
  return fmt::format("{}{}", kFaultPrefix, fault.text->id);
}

}  // namespace kvcheck
