#include "tests/golden/golden_samples.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace kvcheck::golden_samples {

Tensor Counting(DType dtype, const Shape& shape) {
  Tensor tensor(dtype, shape);
  const size_t width = SizeInBytes(dtype);
  for (size_t i = 0; i * width < tensor.bytes.size(); ++i) {
    auto low = static_cast<unsigned char>((17 * i + 3) % 256);
    if (dtype == DType::kBool) low &= 1;
    tensor.bytes[i * width] = std::byte{low};
    if (width > 1) tensor.bytes[i * width + width - 1] = std::byte{0x3f};
  }
  return tensor;
}

namespace {

const Shape kQ = {{"B", 1}, {"Hq", 2}, {"L", 3}, {"Dk", 4}};
const Shape kOut = {{"B", 1}, {"Hq", 2}, {"L", 3}, {"Dv", 4}};
const Shape kLse = {{"B", 1}, {"Hq", 2}, {"L", 3}};

GoldenCase TypesCase() {
  GoldenCase types;
  types.name = "types";
  types.case_text = "every storage type";
  // The order of the table in kvcheck_golden.py, which the extents depend on.
  const DType order[] = {DType::kFloat64,       DType::kFloat32,      DType::kFloat16,
                         DType::kBFloat16,      DType::kFloat8E4M3FN, DType::kFloat8E5M2,
                         DType::kFloat8E8M0FNU, DType::kFloat4E2M1FN, DType::kInt8,
                         DType::kInt16,         DType::kInt32,        DType::kInt64,
                         DType::kUInt8,         DType::kUInt16,       DType::kUInt32,
                         DType::kUInt64,        DType::kBool};
  int64_t i = 0;
  for (DType dtype : order) {
    types.inputs["t_" + std::string(Name(dtype))] =
        Counting(dtype, Shape::Unnamed({1 + i++ % 3, 5}));
  }
  return types;
}

GoldenCase RanksCase() {
  GoldenCase ranks;
  ranks.name = "ranks";
  ranks.case_text = "scalar, vector, empty \xe2\x88\x88 UTF-8";
  Tensor scalar(DType::kFloat32, {});
  *scalar.As<float>() = 1.5f;
  Tensor vector(DType::kInt32, Shape::Unnamed({3}));
  vector.As<int32_t>()[0] = 1;
  vector.As<int32_t>()[1] = -2;
  vector.As<int32_t>()[2] = 3;
  ranks.inputs = {{"scalar", scalar},
                  {"vector", vector},
                  {"empty", Tensor(DType::kFloat32, Shape::Unnamed({2, 0, 3}))},
                  {"rank3", Counting(DType::kFloat32, Shape::Unnamed({2, 3, 4}))}};
  return ranks;
}

GoldenCase AttentionCase() {
  GoldenCase attention;
  attention.name = "attention-1.f32";
  attention.case_text = "attn shape";
  attention.inputs = {
      {"q", Counting(DType::kFloat32, kQ)},
      {"k", Counting(DType::kFloat16, {{"B", 1}, {"Hkv", 1}, {"T", 5}, {"Dk", 4}})},
      {"v", Counting(DType::kBFloat16, {{"B", 1}, {"Hkv", 1}, {"T", 5}, {"Dv", 4}})},
      {"mask", Counting(DType::kBool, {{"L", 3}, {"T", 5}})},
      {"k_codes", Counting(DType::kUInt32, {{"B", 1}, {"Hkv", 1}, {"T", 5}, {"W", 2}})},
      {"big", Counting(DType::kFloat32, Shape::Unnamed({3, 130, 70}))}};
  attention.kv_formats["k_codes"] = "affine:4:32";
  attention.expected["out"] = {Counting(DType::kFloat64, kOut), Counting(DType::kFloat64, kOut)};
  attention.expected["lse"] = {Counting(DType::kFloat64, kLse), std::nullopt};
  ObservedRecord lib;
  lib.impl = "lib";
  lib.outputs = {{"out", Counting(DType::kFloat32, kOut)},
                 {"lse", Counting(DType::kFloat32, kLse)}};
  lib.implementation = "lib.f";
  lib.version = "1";
  lib.machine = "AVX2, 1 thread";
  lib.plan = "p";
  ObservedRecord other;
  other.impl = "other";
  other.outputs = {{"out", Counting(DType::kFloat16, kOut)}};
  other.implementation = "other.g";
  other.version = "2";
  other.expect = "FAIL";
  other.reason = "a finding";
  attention.observed = {lib, other};
  return attention;
}

}  // namespace

GoldenFile FixtureContent() {
  GoldenFile file;
  file.source = "fixture 1";
  file.command = "make_fixture_python.py";
  file.cases = {AttentionCase(), RanksCase(), TypesCase()};
  return file;
}

GoldenFile SmallContent() {
  GoldenFile file;
  file.source = "s";
  file.command = "c";
  GoldenCase small;
  small.name = "a";
  small.case_text = "t";
  small.inputs = {{"q", Counting(DType::kFloat16, {{"L", 3}, {"Dk", 4}})},
                  {"mask", Counting(DType::kBool, {{"L", 3}, {"T", 9}})}};
  small.expected["out"] = {Counting(DType::kFloat64, {{"L", 3}, {"Dv", 2}}), std::nullopt};
  ObservedRecord record;
  record.impl = "i";
  record.outputs = {{"out", Counting(DType::kFloat32, {{"L", 3}, {"Dv", 2}})}};
  small.observed = {record};
  file.cases = {small};
  return file;
}

std::string SafetensorsBytes(const std::string& header, const std::string& data) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

std::string TemporaryPath(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          ("kvcheck_" + std::to_string(getpid()) + "_" + name))
      .string();
}

std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return bytes.str();
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace kvcheck::golden_samples
