#include "golden/schema.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/spec/error.h"

namespace kvcheck {

bool IsGoldenName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes) return false;
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  };
  return std::all_of(name.begin(), name.end(), allowed) &&
         name.find_first_not_of('.') != std::string_view::npos;
}

bool IsGoldenText(std::string_view text) {
  if (text.size() > kMaxTextBytes) return false;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead == 0) return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() - i < length) return false;
    uint32_t point = lead & (0x7fu >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80) return false;
      point = point << 6 | (next & 0x3fu);
    }
    const uint32_t least = length == 4 ? 0x10000u : length == 3 ? 0x800u : 0x80u;
    if (point < least || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) return false;
    i += length;
  }
  return true;
}

std::string ExpectedDataset(std::string_view output, bool low) {
  return fmt::format("expected{}{}{}", output == "out" ? "" : "_",
                     output == "out" ? std::string_view() : output, low ? "_lo" : "");
}

std::string CasePath(std::string_view case_name) { return fmt::format("/cases/{}", case_name); }

std::string AxesText(const Shape& shape) {
  std::string text;
  for (size_t i = 0; i < shape.axes.size(); ++i) {
    text += (i == 0 ? "" : ",") + shape.axes[i].name;
  }
  return text;
}

std::map<std::string, Tensor*> MutableTensorsOf(GoldenCase& golden_case) {
  std::map<std::string, Tensor*> tensors;
  const std::string path = CasePath(golden_case.name) + "/";
  for (auto& [name, tensor] : golden_case.inputs) tensors[path + name] = &tensor;
  for (auto& [name, expected] : golden_case.expected) {
    tensors[path + ExpectedDataset(name, false)] = &expected.hi;
    if (expected.lo) tensors[path + ExpectedDataset(name, true)] = &*expected.lo;
  }
  for (ObservedRecord& observed : golden_case.observed) {
    for (auto& [name, tensor] : observed.outputs) {
      tensors[path + "observed/" + observed.impl + "/" + name] = &tensor;
    }
  }
  return tensors;
}

std::map<std::string, const Tensor*> TensorsOf(const GoldenCase& golden_case) {
  // Nothing is changed: the other function only collects addresses.
  const auto tensors = MutableTensorsOf(const_cast<GoldenCase&>(golden_case));
  return {tensors.begin(), tensors.end()};
}

void CheckStoredValues(const ObjectRecord& record, const std::byte* bytes, size_t size,
                       const std::string& dataset, const std::string& path) {
  if (record.dtype != DType::kBool) return;
  if (std::any_of(bytes, bytes + size, [](std::byte b) { return b > std::byte{1}; })) {
    throw Error(ErrorCode::kUnreadableFile, fmt::format("{}: a bool is neither 0 nor 1", dataset),
                path);
  }
}

}  // namespace kvcheck
