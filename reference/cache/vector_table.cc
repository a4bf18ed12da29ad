#include "reference/cache/vector_table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "reference/spec/error.h"
#include "reference/spec/token_groups.h"

namespace kvcheck {
namespace {

uint64_t HashBytes(const std::byte* bytes, size_t size) {
  // Multiplicative hashing, eight bytes at a time; equal hashes are compared byte by byte.
  uint64_t hash = 0x9e3779b97f4a7c15u + size;
  for (; size >= 8; bytes += 8, size -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
  return hash ^ (hash >> 32);
}

}  // namespace

void VectorTable::Start(const CacheSetup& setup, const Profile& profile,
                        bool looks_for_collisions) {
  if (setup.k_dim != setup_.k_dim || setup.v_dim != setup_.v_dim || setup.x != setup_.x ||
      !(profile == profile_)) {
    formats_.clear();
    groups_.clear();
  }
  setup_ = setup;
  profile_ = profile;
  entries_.clear();
  offsets_.clear();
  bytes_.clear();
  hashed_ = 0;
  collisions_ = 0;
  looks_for_collisions_ = looks_for_collisions;
  if (++stamp_ == 0) {
    hashes_.clear();
    stamp_ = 1;
  }
}

size_t VectorTable::FormatIndex(TokenPart part, const KvFormat& format, DType from) {
  for (size_t i = 0; i < formats_.size(); ++i) {
    if (formats_[i].part == part && formats_[i].codec.from() == from &&
        formats_[i].codec.format() == format) {
      return i;
    }
  }
  formats_.push_back({part, VectorCodec(format, from, Dim(part), profile_)});
  return formats_.size() - 1;
}

std::byte* VectorTable::NewEntry(TokenPart part, size_t format, uint64_t token) {
  const size_t size = static_cast<size_t>(setup_.kv_heads) * formats_[format].codec.bytes();
  const size_t offset = bytes_.size();
  KVCHECK_CHECK(offset + size <= UINT32_MAX, "a trace stores more than 4 GiB");
  bytes_.resize(offset + size);
  entries_.push_back({token, static_cast<uint32_t>(offset), static_cast<uint16_t>(format), part});
  offsets_.push_back(static_cast<uint32_t>(offset));
  return bytes_.data() + offset;
}

int32_t VectorTable::Add(TokenPart part, const KvFormat& format, uint64_t token, const std::byte* x,
                         int64_t head_stride) {
  const size_t index = FormatIndex(part, format, setup_.x);
  std::byte* stored = NewEntry(part, index, token);
  VectorCodec& codec = formats_[index].codec;
  for (int64_t h = 0; h < setup_.kv_heads; ++h) {
    codec.Encode(x + h * head_stride, stored + static_cast<size_t>(h) * codec.bytes(), h);
  }
  const auto handle = static_cast<int32_t>(entries_.size() - 1);
  if (looks_for_collisions_) LookForCollisions(handle);
  return handle;
}

int32_t VectorTable::AddStored(TokenPart part, const KvFormat& format, uint64_t token,
                               const std::byte* stored) {
  const size_t index = FormatIndex(part, format, setup_.x);
  std::byte* to = NewEntry(part, index, token);
  std::memcpy(to, stored, static_cast<size_t>(setup_.kv_heads) * formats_[index].codec.bytes());
  return static_cast<int32_t>(entries_.size() - 1);
}

int32_t VectorTable::Convert(int32_t handle, const KvFormat& format) {
  if (Format(handle) == format) return handle;
  for (int32_t other = entries_[Index(handle)].converted; other >= 0;
       other = entries_[Index(other)].next) {
    if (Format(other) == format) return other;
  }
  const TokenPart part = Part(handle);
  KVCHECK_CHECK(IsPlain(Format(handle)), "codes are not encoded again");
  const size_t from_size = VectorBytes(handle);
  const size_t index = FormatIndex(part, format, RowDType(Format(handle)));
  std::byte* stored = NewEntry(part, index, Token(handle));
  const std::byte* from = Bytes(handle);  // after NewEntry, which may move all bytes
  VectorCodec& codec = formats_[index].codec;
  for (size_t h = 0; h < static_cast<size_t>(setup_.kv_heads); ++h) {
    codec.Encode(from + h * from_size, stored + h * codec.bytes(), static_cast<int64_t>(h));
  }
  const auto made = static_cast<int32_t>(entries_.size() - 1);
  entries_[Index(made)].next = entries_[Index(handle)].converted;
  entries_[Index(handle)].converted = made;
  if (looks_for_collisions_) LookForCollisions(made);
  return made;
}

RowArithmetic& VectorTable::GroupRows(const KvFormat& format, int64_t dim) {
  for (const GroupEntry& entry : groups_) {
    if (entry.format == format && entry.dim == dim) return *entry.rows;
  }
  groups_.push_back(
      {format, dim, ArithmeticOf(format)->MakeRows(profile_, TokenGroupOf(format) * dim)});
  return *groups_.back().rows;
}

void VectorTable::CodeGroup(TokenPart part, const KvFormat& format, std::span<int32_t> handles) {
  const auto dim = static_cast<size_t>(Dim(part));
  const size_t tokens = handles.size();
  // A group of one token stands for the residual: as two equal ones it has the range of one.
  const size_t rows = std::max<size_t>(tokens, TokenGroupOf(format) > 1 ? 2 : 1);
  const KvFormat group = OpenGroupOf(format, static_cast<int64_t>(rows));
  const Planes of_group = PlanesOf(group, static_cast<int64_t>(rows * dim));
  const KvFormat token_format = TokenFormatOf(format);
  const size_t index = FormatIndex(part, token_format, setup_.x);
  const Planes of_token = formats_[index].codec.planes();
  const size_t token_bytes = formats_[index].codec.bytes();
  std::vector<int32_t> coded;
  for (const int32_t handle : handles) {
    NewEntry(part, index, Token(handle));
    coded.push_back(static_cast<int32_t>(entries_.size() - 1));
  }
  std::vector<double> values(rows * dim);
  std::vector<std::byte> stored(of_group.RowBytes());
  for (size_t head = 0; head < static_cast<size_t>(setup_.kv_heads); ++head) {
    for (size_t t = 0; t < rows; ++t) {
      const int32_t handle = handles[std::min(t, tokens - 1)];
      VectorCodec& codec = formats_[entries_[Index(handle)].format].codec;
      codec.DecodeToRowType(Bytes(handle) + head * codec.bytes(), values.data() + t * dim,
                            static_cast<int64_t>(head));
    }
    std::array<std::byte*, kMaxPlanes> planes{};
    std::byte* at = stored.data();
    for (size_t i = 0; i < of_group.size(); ++i, at += of_group[i - 1].Bytes()) planes[i] = at;
    GroupRows(group, Dim(part)).Encode(values, {planes.data(), of_group.size()});
    for (size_t t = 0; t < tokens; ++t) {
      std::byte* to = Bytes(coded[t]) + head * token_bytes;
      for (size_t i = 0; i < of_group.size(); ++i) {
        // What a plane has for every token is the token's; the rest is the group's.
        const size_t bytes = of_token[i].Bytes();
        const bool per_token = of_group[i].Bytes() == rows * bytes;
        std::memcpy(to, planes[i] + (per_token ? t * bytes : 0), bytes);
        to += bytes;
      }
    }
  }
  for (size_t t = 0; t < tokens; ++t) {
    handles[t] = coded[t];
    if (looks_for_collisions_) LookForCollisions(coded[t]);
  }
}

void VectorTable::Decode(int32_t handle, int64_t head, double* values) {
  VectorCodec& codec = formats_[entries_[Index(handle)].format].codec;
  codec.Decode(Bytes(handle) + static_cast<size_t>(head) * codec.bytes(), values, head);
}

void VectorTable::GrowHashes() {
  std::vector<HashSlot> old(hashes_.empty() ? 1024 : 2 * hashes_.size());
  old.swap(hashes_);
  for (const HashSlot& slot : old) {
    if (slot.stamp != stamp_) continue;
    size_t at = slot.hash & (hashes_.size() - 1);
    while (hashes_[at].stamp == stamp_) at = (at + 1) & (hashes_.size() - 1);
    hashes_[at] = slot;
  }
}

void VectorTable::LookForCollisions(int32_t handle) {
  const size_t size = VectorBytes(handle);
  for (size_t h = 0; h < static_cast<size_t>(setup_.kv_heads); ++h) {
    if (2 * (hashed_ + 1) > hashes_.size()) GrowHashes();
    const size_t offset = entries_[Index(handle)].offset + h * size;
    const uint64_t hash = HashBytes(&bytes_[offset], size);
    size_t at = hash & (hashes_.size() - 1);
    for (; hashes_[at].stamp == stamp_; at = (at + 1) & (hashes_.size() - 1)) {
      // The size is part of the hash, so that equal hashes of other sizes do not occur in practice;
      // where the earlier vector ends too soon to be compared, it is the later one that is longer.
      if (hashes_[at].hash == hash && hashes_[at].offset + size <= offset &&
          std::memcmp(&bytes_[hashes_[at].offset], &bytes_[offset], size) == 0) {
        const Entry& entry = entries_[Index(handle)];
        const Entry& other = entries_[Index(hashes_[at].handle)];
        const bool same_vector = other.token == entry.token && other.part == entry.part &&
                                 hashes_[at].offset == other.offset + h * size;
        if (!same_vector) ++collisions_;
        break;
      }
    }
    if (hashes_[at].stamp == stamp_) continue;
    hashes_[at] = {hash, stamp_, static_cast<uint32_t>(offset), handle};
    ++hashed_;
  }
}

StoredTokens VectorTable::View() const {
  return {bytes_.data(), offsets_.data(), static_cast<int64_t>(entries_.size())};
}

}  // namespace kvcheck
