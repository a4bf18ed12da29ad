// Whatever bytes arrive as the header of a safetensors file, behind two bytes that say how much
// data follow it: refused with a reason, or the tensors cover these data from the first byte to the
// last, each byte once, and each of a known type has the bytes of its shape.

#include "golden/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "reference/spec/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvcheck;
  if (size < 2) return 0;
  const uint64_t data_bytes = data[0] + 256u * data[1];
  const std::string_view json(reinterpret_cast<const char*>(data) + 2, size - 2);
  SafetensorsHeader header;
  try {
    header = ParseSafetensorsHeader(json, data_bytes, /*max_tensors=*/100, "f");
  } catch (const Error& error) {
    KVCHECK_CHECK(error.code() == ErrorCode::kUnreadableFile && !error.message().empty(),
                  "a refusal of another kind, or without a reason");
    return 0;
  }
  uint64_t next = 0;
  std::set<std::string> names;
  for (const SafetensorsTensor& tensor : header.tensors) {
    KVCHECK_CHECK(tensor.begin == next && tensor.end >= tensor.begin, "a gap or an overlap");
    KVCHECK_CHECK(names.insert(tensor.name).second, "a name that comes twice");
    next = tensor.end;
    const int bits = SafetensorsBits(tensor.dtype);
    if (bits == 0) continue;
    unsigned __int128 product = static_cast<unsigned>(bits);
    for (const uint64_t extent : tensor.shape) {
      // Below 2^128: beyond 2^64 it is too large in any case.
      product = extent == 0 ? 0 : product > UINT64_MAX ? product : product * extent;
      if (extent == 0) break;
    }
    KVCHECK_CHECK(product == static_cast<unsigned __int128>(tensor.end - tensor.begin) * 8,
                  "a tensor of another size than its shape");
  }
  KVCHECK_CHECK(next == data_bytes, "data after the last tensor");
  return 0;
}
