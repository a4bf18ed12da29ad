// The header of a safetensors file: what its JSON says, and whether that describes the bytes behind
// it without a gap. Nothing is trusted, and nothing is skipped: what the format does not have is
// refused.
//
// Source: https://github.com/huggingface/safetensors, README.md ("Format") and
// safetensors/src/tensor.rs (the reference implementation), version 0.8.

#ifndef GOLDEN_SAFETENSORS_HEADER_H_
#define GOLDEN_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kvcheck {

// The limit of the reference implementation.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsTensor {
  std::string name;
  std::string dtype;  // as the file says it: "BF16"
  std::vector<uint64_t> shape;
  // Of its bytes, from the end of the header: [begin, end).
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<SafetensorsTensor> tensors;  // in the order of their bytes
};

// Bits of one element of a safetensors type; 0 for a type that the format does not have.
int SafetensorsBits(std::string_view dtype);

// json: the header without its length. data_bytes: what follows it in the file. Every tensor of a
// known type has the size of its shape, and the tensors cover the data from its first to its last
// byte, each byte once. max_tensors bounds the memory.
// Errors: kUnreadableFile; `path` is the context.
SafetensorsHeader ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                         int64_t max_tensors, const std::string& path);

// A name from a file for a message: quoted, printable, of bounded length.
std::string QuotedName(std::string_view name);

}  // namespace kvcheck

#endif  // GOLDEN_SAFETENSORS_HEADER_H_
