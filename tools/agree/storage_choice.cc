#include "tools/agree/storage_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "reference/spec/error.h"
#include "tools/measure/format_choice.h"

namespace kvcheck {
namespace {

// TurboQuant at 3.5 bits is K of 4 and V of 3, as mlx-vlm stores it.
std::vector<std::string> Deployed(int64_t head_dim) {
  const auto turboquant = [&](int bits, const char* signs) {
    return fmt::format("turboquant:{}:g{}:mlx_vlm:{}:bf16", bits, head_dim, signs);
  };
  const int64_t group = std::gcd<int64_t>(head_dim, 64);
  // As llama.cpp stores them unless it is told not to.
  const auto rotated = [&](const char* format) {
    return fmt::format("hadamard:{}:{}", group, format);
  };
  const auto affine = [&](int bits) { return fmt::format("affine:{}:g{}:bf16", bits, group); };
  return {"f32",
          "f16",
          "bf16",
          "f8e4m3fn",
          "f8e5m2",
          "fp8:e4m3fn:token:f32",
          "fp8:e4m3fn:token:bf16",
          "int8:token:bf16",
          "int4zp:token:bf16",
          affine(8),
          affine(6),
          affine(5),
          affine(4),
          affine(3),
          affine(2),
          affine(8) + "," + affine(4),
          "q8_0",
          "q5_1",
          "q5_0",
          "q4_1",
          "q4_0",
          "iq4_nl",
          rotated("q8_0"),
          rotated("q4_0"),
          "mxfp8:e4m3:bf16",
          "mxfp4:bf16",
          "nvfp4:bf16",
          turboquant(4, "s0") + "," + turboquant(4, "s1"),
          turboquant(4, "s0") + "," + turboquant(3, "s1"),
          turboquant(3, "s0") + "," + turboquant(3, "s1"),
          turboquant(2, "s0") + "," + turboquant(2, "s1")};
}

}  // namespace

std::vector<PathStorage> ChooseStorages(const std::vector<std::string>& formats,
                                        const std::vector<std::string>& layouts, PathFault fault,
                                        int64_t head_dim) {
  std::vector<PathStorage> storages;
  const auto add = [&](const KvFormat& k, const KvFormat& v) {
    for (const std::string& layout :
         layouts.empty() ? std::vector<std::string>{"linear"} : layouts) {
      if (layout != "linear" && layout != "ring") {
        throw Error(ErrorCode::kUsage,
                    fmt::format("no layout is called '{}': linear, ring are", layout), "--layout");
      }
      const PathStorage storage = {k, v, layout == "ring", fault};
      const bool known = std::any_of(storages.begin(), storages.end(), [&](const PathStorage& s) {
        return s.k == k && s.v == v && s.ring == storage.ring;
      });
      if (!known) storages.push_back(storage);
    }
  };
  for (const std::string& text : formats.empty() ? Deployed(head_dim) : formats) {
    const size_t comma = text.find(',');
    if (comma == std::string::npos) {
      for (const KvFormat& format : ChooseFormats({text}, head_dim)) add(format, format);
      continue;
    }
    const auto one = [&](const std::string& half) {
      const std::vector<KvFormat> chosen = ChooseFormats({half}, head_dim);
      if (chosen.size() == 1) return chosen.front();
      throw Error(ErrorCode::kUsage,
                  fmt::format("'{}' names {} formats: K and V have one each", half, chosen.size()),
                  "--format");
    };
    add(one(text.substr(0, comma)), one(text.substr(comma + 1)));
  }
  return storages;
}

std::string PrintFormats(const PathStorage& storage) {
  if (storage.k == storage.v) return Print(storage.k);
  return Print(storage.k) + "," + Print(storage.v);
}

std::string PrintLayout(const PathStorage& storage) { return storage.ring ? "ring" : "linear"; }

}  // namespace kvcheck
