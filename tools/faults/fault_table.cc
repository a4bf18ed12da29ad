#include "tools/faults/fault_table.h"

#include <algorithm>

#include "reference/spec/dtype.h"
#include "tools/faults/attention_faults.h"
#include "tools/faults/cache_faults.h"
#include "tools/faults/codec_faults.h"
#include "tools/faults/kernel_faults.h"
#include "tools/faults/prefix_faults.h"

namespace kvcheck {
namespace {

constexpr std::string_view kModel =
    "shows in a model of several layers alone; a case has one cache or one kernel";
constexpr std::string_view kEngine =
    "about the memory or threads of an engine, not about what a cache answers";

constexpr UncoveredReport kUncovered[] = {
    {"lcpp-recurrent-restore-head", "about recurrent state, which is no KV cache"},
    {"tq-skip-last-reconstruct", kModel},
    {"tq-quantize-during-prefill", kModel},
    {"cachelist-extend-wrong-arg", kModel},
    {"qsa-quantized-drops-aux", "about tensors beside K and V, which the contract does not have"},
    {"tq-phys-end-offsetmax",
     "the model of the contract has no physical append position; overwritten tokens show as "
     "retained_missing on whatever has one"},
    {"ssd-budget-overcommit", kEngine},
    {"lcpp-kshift-delta", "keys are given with their rotation; a cache of the contract turns none"},
    {"arrays-nbytes-none",
     "a call that throws; the bytes of an empty cache are asked in every trace, and a crash is a "
     "verdict of whoever runs in a child"},
    {"ssd-thread-stream", kEngine},
};

template <typename Faults>
void Add(FaultKind kind, const Faults& faults, std::vector<Fault>* all) {
  for (const auto& fault : faults) all->push_back({kind, &fault});
}

}  // namespace

std::string_view Name(FaultKind kind) {
  constexpr std::string_view kNames[] = {"cache", "attention", "codec", "kernel", "prefix"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view CaseKindOf(FaultKind kind) {
  return kind == FaultKind::kKernel ? "attention" : Name(kind);
}

const std::vector<Fault>& AllFaults() {
  static const std::vector<Fault> faults = [] {
    std::vector<Fault> all;
    Add(FaultKind::kCache, CacheFaults(), &all);
    Add(FaultKind::kAttention, AttentionFaults(), &all);
    Add(FaultKind::kCodec, CodecFaults(), &all);
    Add(FaultKind::kCodec, SmallFloatFaults(), &all);
    Add(FaultKind::kCodec, ScaledFaults(), &all);
    Add(FaultKind::kCodec, TurboquantFaults(), &all);
    Add(FaultKind::kCodec, TurboquantProdFaults(), &all);
    Add(FaultKind::kCodec, BlockFaults(), &all);
    Add(FaultKind::kCodec, ChannelFaults(), &all);
    Add(FaultKind::kKernel, KernelFaults(), &all);
    Add(FaultKind::kPrefix, PrefixFaults(), &all);
    return all;
  }();
  return faults;
}

const Fault* FindFault(std::string_view id) {
  const auto& all = AllFaults();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Fault& fault) { return fault.text->id == id; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string_view> SplitWords(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + separator.size(), text.size()));
  }
  return words;
}

// Of a format's text: its name before its parameters; ggml's blocks, MX and plain types are one
// family each, and a rotated format is what stores it.
std::string_view FamilyWord(std::string_view format) {
  constexpr std::string_view kRotated = "hadamard:";
  if (format.starts_with(kRotated)) return FamilyWord(format.substr(kRotated.size()));
  const std::string_view name = format.substr(0, format.find(':'));
  if (name.starts_with("mxfp")) return "mxfp";
  if (name.starts_with("q") || name.starts_with("iq")) return "ggml";
  const auto type = ParseDType(name);
  return type && IsFloat(*type) ? "plain" : name;
}

std::string CheckOf(std::string_view signature) {
  std::string check;
  for (std::string_view word : SplitWords(signature.substr(0, signature.find(": ")), " ")) {
    const bool family =
        check == "codec encode" || check == "codec decode" || check == "codec round_trip";
    if (family) word = FamilyWord(word);
    if (!check.empty()) check += ' ';
    check += word;
  }
  return check;
}

bool NamesCheck(const FaultText& fault, std::string_view check) {
  const std::vector<std::string_view> named = SplitWords(fault.checks, " | ");
  return std::find(named.begin(), named.end(), check) != named.end();
}

bool IsCaughtByMistrust(const FaultText& fault) {
  const std::vector<std::string_view> named = SplitWords(fault.checks, " | ");
  return std::any_of(named.begin(), named.end(),
                     [](std::string_view check) { return check.ends_with(" MISTRUSTED"); });
}

std::unique_ptr<Implementation> MakeFaulty(std::string_view id, const Plan& plan,
                                           const Profile& profile) {
  if (const AttentionFault* fault = FindAttentionFault(id)) {
    return MakeFaultyAttention(*fault, plan, profile);
  }
  if (const CodecFault* fault = FindCodecFault(id)) {
    return std::make_unique<FaultyCodec>(fault->rules, profile);
  }
  if (const KernelFault* fault = FindKernelFault(id)) {
    return std::make_unique<SmallKernel>(id, fault->steps);
  }
  return nullptr;
}

std::span<const UncoveredReport> UncoveredReports() { return kUncovered; }

}  // namespace kvcheck
