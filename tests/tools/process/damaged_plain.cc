#include "tests/tools/process/damaged_plain.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "golden/mapped_file.h"
#include "golden/plain_writer.h"
#include "reference/spec/error.h"
#include "tests/golden/golden_samples.h"
#include "tools/process/untrusted_reader.h"

namespace kvcheck::golden_damage {
namespace {

using Clock = std::chrono::steady_clock;

// A file and what it holds.
struct Original {
  std::string bytes;
  std::map<std::string, Tensor> tensors;
  // The bytes of the file that are elements, as far as they lie in the open: [from, to).
  std::vector<std::pair<size_t, size_t>> data;
};

UntrustedOptions Options(std::chrono::milliseconds hang_limit) {
  UntrustedOptions options;
  options.child.since_progress = hang_limit;
  options.limits.max_tensor_bytes = int64_t{1} << 28;
  return options;
}

Original OriginalOf(const std::string& path) {
  Original original;
  original.bytes = golden_samples::ReadBytes(path);
  const std::unique_ptr<TensorSource> file = OpenUntrustedTensors(path);
  for (const auto& [name, record] : file->index().objects) {
    if (!record.is_dataset) continue;
    const Tensor& tensor = original.tensors[name] = ReadTensor(*file, name);
    if (!record.data_offset) continue;
    const auto from = static_cast<size_t>(*record.data_offset);
    original.data.emplace_back(from, from + tensor.bytes.size());
  }
  return original;
}

// A number of another length in a header moves the data behind it; they are the same.
bool DataChanged(const Original& original, const std::string& damaged, Damage damage) {
  const size_t shift = damage == Damage::kSwappedSize ? damaged.size() - original.bytes.size() : 0;
  return std::any_of(original.data.begin(), original.data.end(), [&](const auto& range) {
    for (size_t i = range.first; i < range.second; ++i) {
      if (i + shift >= damaged.size() || damaged[i + shift] != original.bytes[i]) return true;
    }
    return false;
  });
}

// True when the mapped bytes of the tensor, where it has an offset, are those that were read.
bool MapsAsItReads(const MappedFile& mapped, const ObjectRecord& record, const Tensor& tensor) {
  if (!record.data_offset) return true;
  const auto size = static_cast<int64_t>(tensor.bytes.size());
  const MappedFile::Window window = mapped.Map(*record.data_offset, size);
  return size == 0 || std::memcmp(window.data(), tensor.bytes.data(), tensor.bytes.size()) == 0;
}

// Reads every tensor of the original, as an exact comparison would.
Outcome Compare(const std::string& path, const Original& original, bool data_changed,
                const UntrustedOptions& options) {
  const std::unique_ptr<TensorSource> file = OpenUntrustedTensors(path, options);
  const MappedFile mapped(path);
  bool differs = false;
  int datasets = 0;
  for (const auto& [name, record] : file->index().objects) datasets += record.is_dataset ? 1 : 0;
  differs = datasets != static_cast<int>(original.tensors.size());
  for (const auto& [name, expected] : original.tensors) {
    const auto found = file->index().objects.find(name);
    if (found == file->index().objects.end() || !found->second.is_dataset) {
      differs = true;
      continue;
    }
    const Tensor got = ReadTensor(*file, name);
    if (!MapsAsItReads(mapped, found->second, got)) return Outcome::kSilentChange;
    differs = differs || got.dtype != expected.dtype || !got.shape.SameExtents(expected.shape) ||
              got.bytes != expected.bytes;
  }
  mapped.ThrowIfDamaged();
  if (differs) return Outcome::kDifferent;
  return data_changed ? Outcome::kSilentChange : Outcome::kUnchanged;
}

Outcome ReadDamaged(const std::string& path, const Original& original, bool data_changed,
                    const UntrustedOptions& options) {
  try {
    return Compare(path, original, data_changed, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnreadableFile) return Outcome::kWrongError;
    if (error.message().find("crashed (signal") != std::string::npos) return Outcome::kCrashed;
    if (error.message().find("made no progress") != std::string::npos) return Outcome::kHung;
    return Outcome::kRefused;
  } catch (const std::exception&) {
    return Outcome::kWrongError;
  }
}

Campaign Run(const std::vector<Original>& originals, int files, uint64_t seed,
             std::chrono::milliseconds hang_limit) {
  const std::string path = golden_samples::TemporaryPath("damaged.plain");
  const UntrustedOptions options = Options(hang_limit);
  Campaign campaign;
  const auto start = Clock::now();
  for (int i = 0; i < files; ++i) {
    const Original& original = originals[static_cast<size_t>(i) % originals.size()];
    const auto kind = static_cast<size_t>(i) / originals.size() % kAllDamage.size();
    const uint64_t file_seed = seed + static_cast<uint64_t>(i);
    const Damage damage = kAllDamage[kind];
    const std::string damaged = Damaged(original.bytes, damage, file_seed);
    golden_samples::WriteBytes(path, damaged);
    const auto file_start = Clock::now();
    const Outcome outcome =
        ReadDamaged(path, original, DataChanged(original, damaged, damage), options);
    const std::chrono::duration<double> taken = Clock::now() - file_start;
    campaign.slowest_s = std::max(campaign.slowest_s, taken.count());
    ++campaign.counts[kind][static_cast<size_t>(outcome)];
    if (outcome == Outcome::kSilentChange || outcome == Outcome::kWrongError) {
      fmt::print(stderr, "{}: file {} of the campaign, {}, seed {}\n", Name(outcome), i,
                 Name(damage), file_seed);
    }
  }
  campaign.total_s = std::chrono::duration<double>(Clock::now() - start).count();
  std::filesystem::remove(path);
  return campaign;
}

std::string FixturePath(const std::string& name) {
  return std::string(KVCHECK_SOURCE_DIR) + "/tests/golden/" + name;
}

// More data than description.
std::map<std::string, Tensor> LargeTensors() {
  using golden_samples::Counting;
  return {{"/layers/0/keys", Counting(DType::kBFloat16, {{"B", 2}, {"T", 129}, {"Dk", 32}})},
          {"/layers/0/values", Counting(DType::kFloat32, {{"B", 2}, {"T", 129}, {"Dv", 32}})},
          {"/offset", Counting(DType::kInt64, {})}};
}

Original LargeHdf5(PlainWriter::Storage storage) {
  const std::string path = golden_samples::TemporaryPath("large.h5");
  PlainWriter writer(path, storage);
  for (const auto& [name, tensor] : LargeTensors()) {
    writer.Begin(name, tensor.dtype, tensor.shape);
    writer.Append(tensor.bytes);
  }
  writer.Finish();
  Original original = OriginalOf(path);
  std::filesystem::remove(path);
  return original;
}

Original LargeSafetensors() {
  const std::map<DType, std::string> types = {
      {DType::kBFloat16, "BF16"}, {DType::kFloat32, "F32"}, {DType::kInt64, "I64"}};
  std::string header = R"({"__metadata__":{"format":"pt"})";
  std::string data;
  for (const auto& [name, tensor] : LargeTensors()) {
    std::vector<int64_t> extents;
    for (const Axis& axis : tensor.shape.axes) extents.push_back(axis.extent);
    header += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          name.substr(1), types.at(tensor.dtype), fmt::join(extents, ","),
                          data.size(), data.size() + tensor.bytes.size());
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  }
  const std::string path = golden_samples::TemporaryPath("large.safetensors");
  golden_samples::WriteBytes(path, golden_samples::SafetensorsBytes(header + "}", data));
  Original original = OriginalOf(path);
  std::filesystem::remove(path);
  return original;
}

}  // namespace

Campaign RunPlainHdf5Campaign(int files, uint64_t seed, std::chrono::milliseconds hang_limit) {
  return Run(
      {OriginalOf(FixturePath("fixture_stranger.h5")), LargeHdf5(PlainWriter::Storage::kContiguous),
       LargeHdf5(PlainWriter::Storage::kChecked)},
      files, seed, hang_limit);
}

Campaign RunSafetensorsCampaign(int files, uint64_t seed, std::chrono::milliseconds hang_limit) {
  return Run({OriginalOf(FixturePath("fixture_torch.safetensors")),
              OriginalOf(FixturePath("fixture_numpy.safetensors")), LargeSafetensors()},
             files, seed, hang_limit);
}

}  // namespace kvcheck::golden_damage
