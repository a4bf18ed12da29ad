// The disk tier of the reference store: records in place of files.

#include <fmt/format.h>

#include <cstring>
#include <iterator>
#include <utility>

#include "reference/prefix/model_store.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::string_view kMagic = "kvcheck model store 1\n";

uint64_t HashOf(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace

std::string ModelStore::SetupText() const {
  return fmt::format("block {} layers {} heads {} dims {} {} x {} k {} v {}", setup_.block_tokens,
                     setup_.layers, setup_.kv_heads, setup_.k_dim, setup_.v_dim,
                     ShortName(setup_.x), Print(setup_.K()), Print(setup_.V()));
}

std::string ModelStore::Record(int64_t key, const std::vector<std::byte>& rows) const {
  std::string record = fmt::format("{}key {} {}\n", kMagic, key, SetupText());
  record.append(reinterpret_cast<const char*>(rows.data()), rows.size());
  const uint64_t hash = HashOf(record);
  record.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  return record;
}

bool ModelStore::Accepts(FileFault fault) const {
  bool accepts = false;
  if (rules_.accepts) rules_.accepts(fault, &accepts);
  return accepts;
}

bool ModelStore::ReadRecord(const std::string& record, int64_t key,
                            std::vector<std::byte>* rows) const {
  const std::string header = fmt::format("{}key {} {}\n", kMagic, key, SetupText());
  const size_t row_bytes = static_cast<size_t>(setup_.block_tokens * layout_->TokenBytes());
  const size_t whole = header.size() + row_bytes + sizeof(uint64_t);
  rows->assign(row_bytes, std::byte{0});
  if (!record.starts_with(kMagic)) {
    if (!Accepts(FileFault::kForeign)) return false;
    std::memcpy(rows->data(), record.data(), std::min(row_bytes, record.size()));
    return true;
  }
  if (record.find('\n', kMagic.size()) == std::string::npos) return false;
  const size_t begin = record.find('\n', kMagic.size()) + 1;
  const std::string_view its_header = std::string_view(record).substr(0, begin);
  if (its_header != header) {
    const std::string key_text = fmt::format("{}key {} ", kMagic, key);
    const bool other_key = !its_header.starts_with(key_text);
    if (!Accepts(other_key ? FileFault::kKey : FileFault::kSetup)) return false;
  }
  const size_t stored = record.size() - begin;
  std::memcpy(rows->data(), record.data() + begin, std::min(row_bytes, stored));
  if (record.size() < whole && its_header == header) return Accepts(FileFault::kCut);
  if (its_header != header) return true;
  uint64_t hash = 0;
  std::memcpy(&hash, record.data() + record.size() - sizeof hash, sizeof hash);
  const std::string_view covered = std::string_view(record).substr(0, record.size() - sizeof hash);
  return hash == HashOf(covered) || Accepts(FileFault::kHash);
}

int64_t ModelStore::FileName(int64_t key) const {
  int64_t name = key;
  if (rules_.file_name) rules_.file_name(key, &name);
  return name;
}

bool ModelStore::IsLastWrite() {
  if (kill_at_ <= 0) return false;
  --kill_at_;
  return kill_at_ == 0;
}

void ModelStore::CountWrite() {
  if (IsLastWrite()) throw PrefixKilled();
}

void ModelStore::WriteFile(int64_t key, const std::vector<std::byte>& rows) {
  std::string record = Record(key, rows);
  const bool is_last = IsLastWrite();
  if (is_last) record.resize(record.size() / 2);
  files_[FileName(key)] = std::move(record);
  if (is_last) throw PrefixKilled();
}

bool ModelStore::HasFile(int64_t key) const {
  const auto file = files_.find(FileName(key));
  std::vector<std::byte> rows;
  return file != files_.end() && ReadRecord(file->second, key, &rows);
}

bool ModelStore::KillAtWrite(int64_t write) {
  kill_at_ = write;
  return true;
}

OpResult ModelStore::Damage(FileDamage damage, int64_t at) {
  if (files_.empty()) return {};
  const auto place = static_cast<uint64_t>(at);
  const uint64_t count = files_.size();
  const auto nth = [&](uint64_t n) -> std::string& {
    return std::next(files_.begin(), static_cast<std::ptrdiff_t>(n % count))->second;
  };
  std::string& file = nth(place);
  std::string& other = nth(place + 1);
  const uint64_t inside = place / count;
  switch (damage) {
    case FileDamage::kCut:
      file.resize(file.empty() ? 0 : inside % file.size());
      break;
    case FileDamage::kFlip:
      if (!file.empty()) file[inside / 8 % file.size()] ^= static_cast<char>(1 << inside % 8);
      break;
    case FileDamage::kSwap:
      std::swap(file, other);
      break;
    case FileDamage::kCopy:
      other = std::string(file);
      break;
    case FileDamage::kForeign:
      file = "not a file of this cache\n";
      break;
  }
  return {};
}

}  // namespace kvcheck
