#include "golden/sharded_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "golden/input_file.h"
#include "golden/numpy_array.h"
#include "golden/safetensors_file.h"
#include "golden/safetensors_header.h"
#include "golden/unique_json.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kShard = ".safetensors";
constexpr std::string_view kIndex = ".safetensors.index.json";
// A line for each of a million tensors.
constexpr int64_t kMaxIndexBytes = int64_t{1} << 28;

[[noreturn]] void RefuseShards(const std::string& reason, const std::string& path) {
  throw Error(ErrorCode::kUnreadableFile, reason, path);
}

std::vector<std::string> NamesIn(const std::string& folder, std::string_view ending) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (name.ends_with(ending)) names.push_back(std::move(name));
  }
  if (error) RefuseShards(fmt::format("the folder cannot be read: {}", error.message()), folder);
  std::sort(names.begin(), names.end());
  return names;
}

// A few of them, as a note has them.
std::string ShownNames(const std::vector<std::string>& names) {
  constexpr size_t kMost = 6;
  const size_t count = std::min(kMost, names.size());
  std::string shown = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  if (names.size() > kMost) shown += fmt::format(", {} more", names.size() - kMost);
  return shown;
}

// Tensor to shard.
std::map<std::string, std::string> ReadWeightMap(const std::string& path) {
  const InputFile file(path);
  if (file.size() > kMaxIndexBytes) {
    RefuseShards(fmt::format("an index of {} bytes, more than {}", file.size(), kMaxIndexBytes),
                 path);
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.ReadAt(0, text.data(), text.size());
  const auto json = ParseUniqueJson(text, path);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    RefuseShards("it is no index of shards: {\"weight_map\": {TENSOR: FILE, ...}} is expected",
                 path);
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    if (!shard.is_string())
      RefuseShards(fmt::format("{} has no file name", QuotedName(tensor)), path);
    const auto name = shard.get<std::string>();
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      RefuseShards(fmt::format("{} is no name of a file of this folder", QuotedName(name)), path);
    }
    weight_map[tensor] = name;
  }
  return weight_map;
}

}  // namespace

ShardedFile::ShardedFile(const std::string& folder, const ReadLimits& limits) : folder_(folder) {
  index_.objects.emplace("/", ObjectRecord());
  const std::vector<std::string> indices = NamesIn(folder, kIndex);
  if (indices.size() > 1) {
    RefuseShards(fmt::format("{} and {} are indices of shards: name the files of one of them",
                             QuotedName(indices[0]), QuotedName(indices[1])),
                 folder);
  }
  if (indices.empty()) {
    const std::vector<std::string> shards = NamesIn(folder, kShard);
    for (const std::string& shard : shards) {
      Take(shard, std::make_unique<SafetensorsFile>(folder + "/" + shard, limits), nullptr, limits);
    }
    if (!shards.empty()) return;
    const std::vector<std::string> arrays = NamesIn(folder, kNumpyEnding);
    if (arrays.empty()) {
      RefuseShards("it is a folder without safetensors files and without .npy files: name a file",
                   folder);
    }
    for (const std::string& array : arrays) {
      Take(array, std::make_unique<NumpyFile>(folder + "/" + array, std::nullopt, limits), nullptr,
           limits);
    }
    return;
  }
  const std::string index_path = folder + "/" + indices[0];
  const std::map<std::string, std::string> weight_map = ReadWeightMap(index_path);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  for (const std::string& shard : shards) {
    Take(shard, std::make_unique<SafetensorsFile>(folder + "/" + shard, limits), &weight_map,
         limits);
  }
  for (std::string& shard : NamesIn(folder, kShard)) {
    if (!shards.contains(shard)) unnamed_.push_back(std::move(shard));
  }
  if (!unnamed_.empty()) {
    index_.objects["/"].attributes[kNotNamedByIndex] = ShownNames(unnamed_);
  }
  for (const auto& [tensor, shard] : weight_map) {
    if (index_.objects.contains("/" + tensor)) continue;
    RefuseShards(fmt::format("{} has no tensor {}", QuotedName(shard), QuotedName(tensor)),
                 index_path);
  }
}

void ShardedFile::Take(const std::string& shard, std::unique_ptr<TensorSource> source,
                       const std::map<std::string, std::string>* weight_map,
                       const ReadLimits& limits) {
  const std::string path = folder_ + "/" + shard;
  shards_.push_back(std::move(source));
  for (const auto& [name, record] : shards_.back()->index().objects) {
    if (name == "/") {
      for (const auto& [key, value] : record.attributes) {
        if (key == kNamedByFile) continue;  // a folder of them has several names
        index_.objects["/"].attributes[shard + "." + key] = value;
      }
      continue;
    }
    ObjectRecord taken = record;
    taken.data_offset.reset();
    if (weight_map != nullptr) {
      const auto named = weight_map->find(name.substr(1));
      // It may be there under this name from the shard that the index does name.
      if (named != weight_map->end() && named->second != shard) {
        unnamed_.push_back(fmt::format("{} of {}", QuotedName(name.substr(1)), shard));
        continue;
      }
      if (named == weight_map->end()) {
        taken = ObjectRecord();
        taken.problem =
            fmt::format("shard {} has it, and the index does not name it", QuotedName(shard));
      }
    }
    if (!index_.objects.emplace(name, std::move(taken)).second) {
      RefuseShards(fmt::format("two shards have the tensor {}", QuotedName(name.substr(1))), path);
    }
    shard_of_[name] = shards_.size() - 1;
  }
  if (static_cast<int64_t>(index_.objects.size()) - 1 > limits.max_objects) {
    RefuseShards(fmt::format("more than {} tensors", limits.max_objects), folder_);
  }
}

TensorOrigin ShardedFile::OriginOf(const std::string& dataset) const {
  return shards_[shard_of_.at(dataset)]->OriginOf(dataset);
}

void ShardedFile::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                               std::byte* out) {
  DatasetRecord(*this, dataset);
  shards_[shard_of_.at(dataset)]->ReadElements(dataset, first, count, out);
}

}  // namespace kvcheck
