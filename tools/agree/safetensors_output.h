// Writes a safetensors file of a few tensors that are in memory.

#ifndef TOOLS_AGREE_SAFETENSORS_OUTPUT_H_
#define TOOLS_AGREE_SAFETENSORS_OUTPUT_H_

#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace kvcheck {

struct OutputTensor {
  std::string name;
  std::string dtype;  // as safetensors writes it: "F64"
  std::vector<int64_t> shape;
  std::string bytes;  // little endian
};

// The bytes of a number, appended.
template <typename Number>
void AppendNumber(Number value, std::string* to) {
  static_assert(std::endian::native == std::endian::little);
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The tensors in this order: those of the largest elements first, so that each is aligned.
// metadata: of __metadata__. Errors: kUnreadableFile where it
// cannot be written.
void WriteSafetensors(const std::string& path, const std::map<std::string, std::string>& metadata,
                      std::span<const OutputTensor> tensors);

}  // namespace kvcheck

#endif  // TOOLS_AGREE_SAFETENSORS_OUTPUT_H_
