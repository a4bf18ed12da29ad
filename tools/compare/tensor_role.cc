#include "tools/compare/tensor_role.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "reference/spec/near_name.h"

namespace kvcheck {
namespace {

// Listed in messages.
constexpr size_t kMostPresent = 12;

// Names of PyTorch (query, attn_mask), transformers (query_states, attn_output, s_aux),
// FlashAttention (softmax_lse), vLLM and FlashInfer, and of the projections whose outputs are
// dumped. Each between blanks.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kOtherNames = {{
    {"q", " query queries query_states query_layer q_proj wq xq "},
    {"k", " key keys key_states key_layer k_proj wk xk k_cache key_cache "},
    {"v", " value values value_states value_layer v_proj wv xv v_cache value_cache "},
    {"out",
     " output outputs o attn_output attn_out attention_output attn_outputs result "
     "context context_layer y "},
    {"lse", " softmax_lse logsumexp log_sum_exp lse_out "},
    {"mask", " attn_mask attention_mask attn_bias bias "},
    {"sinks", " sink s_aux attention_sink attention_sinks "},
    {"alibi_slopes", " slopes alibi "},
    {"x", " input inputs original rows "},
    {"y", " output outputs out decoded dequantized dequantised "},
    {"codes", " weight w w_q packed quantized wq "},
    {"scales", " scale "},
    {"biases", " bias zeros "},
    {"expected", " want gold reference "},
    {"got", " actual result output "},
    {"k_codes", " key_codes keys_codes "},
}};

}  // namespace

std::string_view LastPart(std::string_view path) {
  const size_t at = path.find_last_of("/.");
  return at == std::string_view::npos ? path : path.substr(at + 1);
}

bool IsOtherName(std::string_view path, std::string_view name) {
  const std::string last = LowerCase(LastPart(path));
  if (last == LowerCase(name)) return true;
  const auto* others = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                    [&](const auto& entry) { return entry.first == name; });
  return others != kOtherNames.end() && !last.empty() &&
         others->second.find(" " + last + " ") != std::string_view::npos;
}

std::vector<std::string> DatasetsMeantBy(const FileIndex& index, std::string_view name,
                                         int64_t elements) {
  std::vector<std::string> meant;
  std::vector<std::string> as_large;
  for (const auto& [path, record] : index.objects) {
    if (!record.is_dataset || !record.problem.empty() || !IsOtherName(path, name)) continue;
    meant.push_back(path);
    if (record.shape.ElementCount() == elements) as_large.push_back(path);
  }
  return meant.size() > 1 && !as_large.empty() ? as_large : meant;
}

std::string PresentText(const FileIndex& index, std::string_view name, int64_t elements,
                        const std::vector<std::string>& taken) {
  std::string text;
  size_t count = 0;
  std::vector<std::string> as_large;
  std::vector<std::string> names;
  for (const auto& [path, record] : index.objects) {
    if (!record.is_dataset) continue;
    if (++count <= kMostPresent) {
      text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", path, Name(record.dtype),
                          ToString(record.shape));
    }
    if (std::find(taken.begin(), taken.end(), path) != taken.end()) continue;
    names.push_back(path);
    if (record.shape.ElementCount() == elements) as_large.push_back(path);
  }
  if (count == 0) return "the file has no tensor";
  if (count > kMostPresent) text += fmt::format(" and {} more", count - kMostPresent);
  text.insert(0, "present: ");
  // What has the name's letters, else what has as many elements, where it is one alone.
  std::string meant = NearestName(fmt::format("/{}", name), as_large);
  if (meant.empty() && as_large.size() == 1) meant = as_large.front();
  if (meant.empty()) meant = NearestName(fmt::format("/{}", name), names);
  return meant.empty() ? fmt::format("{}; say which it is with --map {}=/PATH", text, name)
                       : fmt::format("{}; did you mean --map {}={}?", text, name, meant);
}

}  // namespace kvcheck
