#include "tools/agree/file_identity.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <vector>

#include "golden/input_file.h"
#include "golden/raw_file.h"

namespace kvcheck {

bool AreOneFile(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(ParseTensorPlace(a).path, ParseTensorPlace(b).path, ignored);
}

bool HaveSameBytes(const std::string& of_a, const std::string& of_b, const Cancel& cancel) {
  const std::string a = ParseTensorPlace(of_a).path, b = ParseTensorPlace(of_b).path;
  // Folders, and names with more than a file in them, have no bytes of their own.
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(a, ignored)) return false;
  if (!std::filesystem::is_regular_file(b, ignored)) return false;
  constexpr int64_t kBlockBytes = int64_t{1} << 20;
  const InputFile first(a);
  const InputFile second(b);
  if (first.size() != second.size()) return false;
  std::vector<char> x, y;
  for (int64_t at = 0; at < first.size(); at += kBlockBytes) {
    cancel();
    const auto bytes = static_cast<size_t>(std::min(kBlockBytes, first.size() - at));
    x.resize(bytes);
    y.resize(bytes);
    first.ReadAt(at, x.data(), bytes);
    second.ReadAt(at, y.data(), bytes);
    if (x != y) return false;
  }
  return true;
}

}  // namespace kvcheck
