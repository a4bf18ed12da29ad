#include "tools/corridor/file_trace_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "reference/spec/error.h"
#include "reference/spec/near_name.h"
#include "reference/trace/trace_inputs.h"
#include "tools/process/untrusted_reader.h"

namespace kvcheck {
namespace {

std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw Error(ErrorCode::kUnreadableFile, "it cannot be written", path);
}

}  // namespace

FileTraceStore::FileTraceStore()
    : store_(folder_.path(), [](const std::string& path) -> std::unique_ptr<TensorSource> {
        return std::make_unique<UntrustedFile>(path);
      }) {}

void FileTraceStore::Put(std::string_view key, const StateRecord& record) {
  store_.Put(key, record);
  if (const auto found = originals_.find(key); found != originals_.end()) originals_.erase(found);
}

StoreStatus FileTraceStore::Get(std::string_view key, StateRecord* record) const {
  return store_.Get(key, record);
}

void FileTraceStore::Clear() {
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    std::filesystem::remove_all(entry.path());
  }
  originals_.clear();
}

OpResult FileTraceStore::Damage(std::string_view key, const CacheOp& op) {
  const std::string path = store_.PathOf(key);
  std::string bytes = ReadBytes(path);
  originals_.try_emplace(std::string(key), bytes);
  if (op.damage == Damage::kForeign || op.damage == Damage::kVersion) {
    StateRecord record;
    // What cannot be read any more stays damaged.
    if (store_.Get(key, &record) != StoreStatus::kOk) return {};
    DamageRecord(op, &record);
    store_.Put(key, record);
    return {};
  }
  if (bytes.empty()) return {};
  if (op.damage == Damage::kTruncate) {
    bytes.pop_back();
  } else {
    const auto at = static_cast<size_t>(op.at) % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (op.at % 8)));
  }
  WriteBytes(path, bytes);
  return {};
}

bool FileTraceStore::IsAsPut(std::string_view key) const {
  const auto found = originals_.find(key);
  return found == originals_.end() || ReadBytes(store_.PathOf(key)) == found->second;
}

std::unique_ptr<TraceStore> MakeTraceStore(const std::string& name) {
  if (name == kMemoryStore) return nullptr;
  if (name == "hdf5") return std::make_unique<FileTraceStore>();
  throw Error(ErrorCode::kUsage,
              fmt::format("there is no store '{}'{}; known: memory, hdf5", name,
                          DidYouMean(name, "memory, hdf5")),
              "--store");
}

}  // namespace kvcheck
