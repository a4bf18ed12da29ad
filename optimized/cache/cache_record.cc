// A cache as a record of a store, and back. A reader stays for every version that was ever written;
// a new version gets one beside it, and a file of its own among tests/golden/state_v*.h5, which
// must load for good. Version 1:
//
//   kind "kvcheck-cache"; layout, k, v (texts of reference/spec), x, heads ("Hkv Dk Dv"); hash
//   rows      i64 (B, 3): tokens seen, first retained position beside the kept ones, unfed padding
//   k_codes, k_scales, k_biases, v_codes, v_scales, v_biases
//             u8 (T, bytes): retained tokens, row by row, oldest first, all heads of a token; those
//             that the format has. Of a format that codes groups of tokens (groups, bytes); of one
//             with a residual those that have left it, and
//   k_residual, v_residual
//             u8 (T, bytes): the tokens in it, by position modulo its room
//
// Capacity and slots are no part of it: what is loaded has its own.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "optimized/cache/cache_factory.h"
#include "optimized/cache/optimized_cache.h"
#include "reference/spec/error.h"
#include "reference/spec/text.h"

namespace kvcheck::optimized {
namespace {

constexpr const char* kKind = "kvcheck-cache";
constexpr const char* kVersion = "1";
constexpr std::array<const char*, kPlanes> kPlaneNames = {"k_codes",    "k_scales",  "k_biases",
                                                          "v_codes",    "v_scales",  "v_biases",
                                                          "k_residual", "v_residual"};
constexpr int64_t kRowFields = 3;
// More than any cache sees; sums of such numbers do not overflow.
constexpr int64_t kMostTokens = int64_t{1} << 48;
constexpr std::string_view kDamaged = "the record is damaged: its parts do not fit together";

std::string HeadsText(const CacheSetup& setup) {
  return std::to_string(setup.kv_heads) + " " + std::to_string(setup.k_dim) + " " +
         std::to_string(setup.v_dim);
}

std::string AttributeOf(const StateRecord& record, const char* name) {
  const auto found = record.attributes.find(name);
  return found == record.attributes.end() ? "" : found->second;
}

const Tensor* Find(const StateRecord& record, const char* name, DType dtype, int64_t columns) {
  const auto found = record.tensors.find(name);
  if (found == record.tensors.end()) return nullptr;
  const Tensor& tensor = found->second;
  const auto& axes = tensor.shape.axes;
  if (tensor.dtype != dtype || axes.size() != 2 || axes[0].extent < 0 || columns <= 0 ||
      axes[1].extent != columns) {
    return nullptr;
  }
  const int64_t row_bytes = columns * static_cast<int64_t>(SizeInBytes(dtype));
  const auto bytes = static_cast<int64_t>(tensor.bytes.size());
  return bytes % row_bytes == 0 && bytes / row_bytes == axes[0].extent ? &tensor : nullptr;
}

bool FitsMemory(int64_t rows, int64_t slots, const StoreShape& shape) {
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  double bytes = 0;
  for (const PlaneShape& plane : shape) {
    bytes += static_cast<double>(plane.Room(slots)) * static_cast<double>(plane.bytes);
  }
  return static_cast<double>(rows) * bytes < memory;
}

}  // namespace

OpResult OptimizedCache::Save(StateStore* store, std::string_view key) const {
  if (pending_) {
    return OpResult::Refuse("a prepared prefill is pending: append or finalize first");
  }
  StateRecord record;
  record.attributes = {{kStateKind, kKind},          {kStateVersion, kVersion},
                       {"layout", Print(layout_)},   {"k", Print(k_format())},
                       {"v", Print(v_format())},     {"x", std::string(ShortName(setup_->x))},
                       {"heads", HeadsText(*setup_)}};
  Tensor rows(DType::kInt64, {{"B", row_count()}, {"", kRowFields}});
  for (int64_t b = 0; b < row_count(); ++b) {
    const CacheRow& row = rows_[static_cast<size_t>(b)];
    int64_t* fields = rows.As<int64_t>() + b * kRowFields;
    fields[0] = row.offset;
    fields[1] = row.from;
    fields[2] = row.unfed_padding;
  }
  record.tensors["rows"] = std::move(rows);
  for (int p = 0; p < kPlanes; ++p) {
    const PlaneShape& shape = store_.shape(p);
    const int64_t bytes = shape.bytes;
    if (bytes == 0) continue;
    int64_t entries = 0;
    for (const CacheRow& row : rows_) entries += shape.Entries(Retained(row).Count());
    Tensor plane(DType::kUInt8, {{"T", entries}, {"", bytes}});
    std::byte* to = plane.bytes.data();
    ForEachEntry(p, [&](int64_t b, int64_t entry, int64_t count) {
      std::memcpy(to, store_.At(p, b, entry), static_cast<size_t>(count * bytes));
      to += count * bytes;
    });
    record.tensors[kPlaneNames[static_cast<size_t>(p)]] = std::move(plane);
  }
  record.attributes[kStateHash] = StateHash(record);
  store->Put(key, record);
  return {};
}

std::string_view OptimizedCache::ReadVersion1(const StateRecord& record, const CacheLayout& layout,
                                              const KvFormat& k, const KvFormat& v) {
  const Tensor* rows = Find(record, "rows", DType::kInt64, kRowFields);
  if (rows == nullptr) return kDamaged;
  const StoreShape shape = ShapeFor(k, v);
  std::array<const Tensor*, kPlanes> planes{};
  std::array<int64_t, kPlanes> left{};  // entries of which no row has been read
  size_t tensors = 1;
  for (size_t p = 0; p < kPlanes; ++p) {
    if (shape[p].bytes == 0) continue;
    planes[p] = Find(record, kPlaneNames[p], DType::kUInt8, shape[p].bytes);
    if (planes[p] == nullptr) return kDamaged;
    left[p] = planes[p]->shape.axes[0].extent;
    ++tensors;
  }
  if (record.tensors.size() != tensors) return kDamaged;
  std::vector<CacheRow> read(static_cast<size_t>(rows->shape.axes[0].extent));
  for (size_t b = 0; b < read.size(); ++b) {
    const int64_t* fields = rows->As<int64_t>() + b * static_cast<size_t>(kRowFields);
    CacheRow& row = read[b];
    row.offset = fields[0];
    row.from = fields[1];
    row.unfed_padding = fields[2];
    if (row.offset < 0 || row.offset > kMostTokens || row.from < 0 || row.from > row.offset ||
        row.unfed_padding < 0 || row.unfed_padding > kMostTokens) {
      return kDamaged;
    }
    // What the next query may see must be there.
    if (NearestReachable(layout, row.from, row.offset + 1, row.offset) != row.offset) {
      return kDamaged;
    }
    const int64_t count = TokenRange{layout.keep, row.from, row.offset}.Count();
    for (size_t p = 0; p < kPlanes; ++p) {
      if (planes[p] == nullptr) continue;
      left[p] -= shape[p].Entries(count);
      if (left[p] < 0 || (shape[p].IsGrouped() && count != row.offset)) return kDamaged;
    }
  }
  if (left != std::array<int64_t, kPlanes>{}) return kDamaged;
  // A short record can ask for much: every row gets the slots of the longest.
  int64_t slots = 0;
  for (const CacheRow& row : read) {
    slots = std::max(slots, SlotsNeeded(layout.keep, row.from, row.offset));
  }
  if (!FitsMemory(static_cast<int64_t>(read.size()), UpToStep(slots), shape)) {
    return "the record asks for more memory than this machine has";
  }

  Become(layout, k, v);
  rows_ = std::move(read);
  store_.Shape(row_count(), UpToStep(MostSlotsNeeded()), shape);
  for (int p = 0; p < kPlanes; ++p) {
    const Tensor* plane = planes[static_cast<size_t>(p)];
    if (plane == nullptr) continue;
    const std::byte* from = plane->bytes.data();
    ForEachEntry(p, [&](int64_t b, int64_t entry, int64_t count) {
      const int64_t size = count * store_.shape(p).bytes;
      std::memcpy(store_.At(p, b, entry), from, static_cast<size_t>(size));
      from += size;
    });
  }
  return "";
}

OpResult OptimizedCacheFactory::Load(const StateStore& store, std::string_view key,
                                     std::unique_ptr<Cache>* out) {
  StateRecord record;
  switch (store.Get(key, &record)) {
    case StoreStatus::kOk:
      break;
    case StoreStatus::kMissing:
      return OpResult::Refuse("nothing is saved under this key");
    case StoreStatus::kDamaged:
      return OpResult::Refuse("the store says that it is damaged");
  }
  if (AttributeOf(record, kStateKind) != kKind) {
    return OpResult::Refuse("the record is not one of this cache");
  }
  if (AttributeOf(record, kStateVersion) != kVersion) {
    return OpResult::Refuse("the record is of an unknown version");
  }
  if (AttributeOf(record, kStateHash) != StateHash(record)) {
    return OpResult::Refuse("the record is damaged: its hash is another");
  }
  if (AttributeOf(record, "x") != ShortName(setup_->x) ||
      AttributeOf(record, "heads") != HeadsText(*setup_)) {
    return OpResult::Refuse("the record is of another type or shape");
  }
  CacheLayout layout;
  KvFormat k;
  KvFormat v;
  try {
    layout = ParseCacheLayout(WholeLine(AttributeOf(record, "layout")));
    k = ParseKvFormat(WholeLine(AttributeOf(record, "k")));
    v = ParseKvFormat(WholeLine(AttributeOf(record, "v")));
  } catch (const Error&) {
    return OpResult::Refuse(kDamaged);
  }
  if (!IsLegal(layout) || !WhyNotFormats(*setup_, layout, k, v).empty()) {
    return OpResult::Refuse(kDamaged);
  }
  const bool reuses = *out != nullptr;
  OptimizedCache* made = OptimizedCache::Fresh(setup_, out);
  const std::string_view why = made->ReadVersion1(record, layout, k, v);
  if (why.empty()) return {};
  if (!reuses) out->reset();
  return OpResult::Refuse(why);
}

}  // namespace kvcheck::optimized
