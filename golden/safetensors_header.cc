#include "golden/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kMakeAnew = "; the file is damaged or was not finished: make it anew";
// More than any array library has: a longer shape is an attack on memory.
constexpr size_t kMaxExtents = 256;

[[noreturn]] void Refuse(const std::string& reason, const std::string& path) {
  throw Error(ErrorCode::kUnreadableFile, reason, path);
}

// Collects the header from the events of the JSON parser, which unlike its documents show a key
// that comes twice. Anything out of place ends the parsing with a reason.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderEvents(int64_t max_tensors, const std::string& path)
      : max_tensors_(max_tensors), path_(path) {}

  SafetensorsHeader Take() { return std::move(header_); }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        return Go(Place::kTop);
      case Place::kTop:
        return Go(key_ == kMetadata ? Place::kMetadata : Place::kTensor);
      default:
        Misplaced("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::kTop) return Go(Place::kEnd);
    if (place_ == Place::kTensor) FinishTensor();
    return Go(Place::kTop);
  }

  bool key(std::string& name) override {
    switch (place_) {
      case Place::kTop:
        if (!names_.insert(name).second) {
          Refuse(fmt::format("its header names {} twice", QuotedName(name)), path_);
        }
        if (static_cast<int64_t>(names_.size()) > max_tensors_) {
          Refuse(fmt::format("its header names more than {} tensors", max_tensors_), path_);
        }
        key_ = name;
        if (name != kMetadata) StartTensor(name);
        return true;
      case Place::kMetadata:
        if (!header_.metadata.emplace(name, "").second) {
          Refuse(fmt::format("its {} has the key {} twice", kMetadata, QuotedName(name)), path_);
        }
        field_ = name;
        return true;
      default:
        if (name != "dtype" && name != "shape" && name != "data_offsets") {
          RefuseTensor(
              fmt::format("has a field {}, which the format does not have", QuotedName(name)));
        }
        if (!fields_.insert(name).second) RefuseTensor(fmt::format("has two fields '{}'", name));
        field_ = name;
        return true;
    }
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[field_] = value;
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") Misplaced("a text");
    tensor_.dtype = value;
    return true;
  }

  bool start_array(size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") Misplaced("an array");
    return Go(field_ == "shape" ? Place::kShape : Place::kOffsets);
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_.size() != 2) {
      RefuseTensor(fmt::format("has {} data_offsets where 2 are needed", offsets_.size()));
    }
    return Go(Place::kTensor);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      tensor_.shape.push_back(value);
      if (tensor_.shape.size() > kMaxExtents) {
        RefuseTensor(fmt::format("has more than {} extents", kMaxExtents));
      }
      return true;
    }
    if (place_ == Place::kOffsets && offsets_.size() < 2) {
      offsets_.push_back(value);
      return true;
    }
    if (place_ == Place::kOffsets) RefuseTensor("has more than 2 data_offsets");
    Misplaced("a number");
  }

  bool number_integer(number_integer_t value) override {
    Misplaced(fmt::format("the negative number {}", value));
  }
  bool number_float(number_float_t, const std::string& text) override {
    Misplaced(fmt::format("the number {}, no integer of 64 bits,", text.substr(0, 40)));
  }
  bool null() override { Misplaced("null"); }
  bool boolean(bool) override { Misplaced("a truth value"); }
  bool binary(nlohmann::json::binary_t&) override { Misplaced("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    Refuse(fmt::format("its header is no JSON: byte {} of the file cannot be there{}", 7 + position,
                       kMakeAnew),
           path_);
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool Go(Place place) {
    place_ = place;
    return true;
  }

  [[noreturn]] void RefuseTensor(std::string_view reason) const {
    Refuse(fmt::format("tensor {} {}", QuotedName(tensor_.name), reason), path_);
  }

  // A value where the format has another: also how deeper nesting ends.
  [[noreturn]] void Misplaced(std::string_view what) const {
    if (place_ == Place::kStart) {
      Refuse(fmt::format("its header is {}, not an object", what), path_);
    }
    if (place_ == Place::kMetadata || (place_ == Place::kTop && key_ == kMetadata)) {
      Refuse(fmt::format("its {} holds {} where only texts by name are allowed", kMetadata, what),
             path_);
    }
    if (place_ == Place::kTop) RefuseTensor(fmt::format("is {}, not an object", what));
    RefuseTensor(fmt::format("has {} in its {}", what, field_));
  }

  void StartTensor(const std::string& name) {
    tensor_ = {};
    tensor_.name = name;
    if (name.empty()) Refuse("its header has a tensor without a name", path_);
    fields_.clear();
    offsets_.clear();
  }

  void FinishTensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(field)) RefuseTensor(fmt::format("has no {}", field));
    }
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    header_.tensors.push_back(std::move(tensor_));
  }

  const int64_t max_tensors_;
  const std::string& path_;
  SafetensorsHeader header_;
  Place place_ = Place::kStart;
  std::set<std::string> names_;   // of the top object
  std::string key_;               // the last of them
  SafetensorsTensor tensor_;      // the one being read
  std::set<std::string> fields_;  // of it
  std::string field_;             // the last of them, or of __metadata__
  std::vector<uint64_t> offsets_;
};

// Bytes of the elements; nullopt when a product on the way does not fit 64 bits or the bits do not
// fill whole bytes. An extent of 0 does not excuse the others.
std::optional<uint64_t> BytesOf(const std::vector<uint64_t>& shape, int bits) {
  auto total = static_cast<uint64_t>(bits);
  bool empty = false;
  for (uint64_t extent : shape) {
    empty = empty || extent == 0;
    if (extent == 0) continue;
    if (extent > std::numeric_limits<uint64_t>::max() / total) return std::nullopt;
    total *= extent;
  }
  if (empty) return 0;
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

void CheckSizes(const SafetensorsTensor& tensor, const std::string& path) {
  const std::string name = QuotedName(tensor.name);
  if (tensor.end < tensor.begin) {
    Refuse(fmt::format("tensor {} ends at byte {} of the data, before its start at {}{}", name,
                       tensor.end, tensor.begin, kMakeAnew),
           path);
  }
  const int bits = SafetensorsBits(tensor.dtype);
  if (bits == 0) return;  // listed as unreadable
  const std::optional<uint64_t> bytes = BytesOf(tensor.shape, bits);
  const std::string shape = fmt::format("{}", fmt::join(tensor.shape, "x"));
  if (!bytes) {
    Refuse(fmt::format("tensor {}: {} elements of {} are no number of bytes{}", name, shape,
                       tensor.dtype, kMakeAnew),
           path);
  }
  if (*bytes != tensor.end - tensor.begin) {
    Refuse(fmt::format("tensor {}: {} of {} are {} bytes, its data_offsets span {}{}", name,
                       shape.empty() ? "a scalar" : shape, tensor.dtype, *bytes,
                       tensor.end - tensor.begin, kMakeAnew),
           path);
  }
}

void CheckCoverage(const std::vector<SafetensorsTensor>& tensors, uint64_t data_bytes,
                   const std::string& path) {
  uint64_t covered = 0;
  const SafetensorsTensor* before = nullptr;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin < covered) {
      Refuse(
          fmt::format("tensors {} and {} overlap in the bytes from {} of the data{}",
                      QuotedName(before->name), QuotedName(tensor.name), tensor.begin, kMakeAnew),
          path);
    }
    if (tensor.begin > covered) {
      Refuse(fmt::format("bytes {} to {} of the data, before tensor {}, belong to no tensor{}",
                         covered, tensor.begin, QuotedName(tensor.name), kMakeAnew),
             path);
    }
    covered = tensor.end;
    before = &tensor;
  }
  if (covered > data_bytes) {
    Refuse(fmt::format("it is cut off: its tensors need {} bytes of data and {} are there; copy or "
                       "make it anew",
                       covered, data_bytes),
           path);
  }
  if (covered < data_bytes) {
    Refuse(fmt::format("{} bytes follow its last tensor, which no tensor owns{}",
                       data_bytes - covered, kMakeAnew),
           path);
  }
}

}  // namespace

int SafetensorsBits(std::string_view dtype) {
  struct Entry {
    std::string_view dtype;
    int bits;
  };
  static constexpr std::array<Entry, 22> kEntries = {
      {{"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
       {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
       {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
       {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
       {"I64", 64},        {"U64", 64}}};
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry.bits;
  }
  return 0;
}

SafetensorsHeader ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                         int64_t max_tensors, const std::string& path) {
  if (!json.starts_with('{')) {
    Refuse("its header does not start with '{': it is no safetensors file, or damaged", path);
  }
  // The parser takes a NUL for the end of its input and would not read on.
  if (const size_t nul = json.find('\0'); nul != std::string_view::npos) {
    Refuse(fmt::format("its header is no JSON: byte {} of the file is 0{}", 8 + nul, kMakeAnew),
           path);
  }
  HeaderEvents events(max_tensors, path);
  nlohmann::json::sax_parse(json.begin(), json.end(), &events);
  SafetensorsHeader header = events.Take();
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  for (const SafetensorsTensor& tensor : header.tensors) CheckSizes(tensor, path);
  CheckCoverage(header.tensors, data_bytes, path);
  return header;
}

std::string QuotedName(std::string_view name) {
  constexpr size_t kShown = 120;
  std::string quoted = "'";
  for (char c : name.substr(0, kShown)) {
    if (c >= 0x20 && c <= 0x7e) {
      quoted += c;
    } else {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return quoted + (name.size() > kShown ? "...'" : "'");
}

}  // namespace kvcheck
