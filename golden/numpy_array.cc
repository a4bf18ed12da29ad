#include "golden/numpy_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <list>
#include <map>
#include <set>
#include <utility>

#include "golden/safetensors_header.h"
#include "golden/schema.h"
#include "golden/zip_archive.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

[[noreturn]] void RefuseArray(const std::string& reason, const std::string& context) {
  throw Error(ErrorCode::kUnreadableFile, reason, context);
}

// The literal of Python that a header is: a dict of texts, truth values and a tuple of integers.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& context)
      : text_(text), context_(context) {}

  struct Fields {
    std::string descr;  // "" of one that is no text: fields of a record
    bool is_fortran_order = false;
    std::vector<int64_t> shape;
  };

  Fields Parse() {
    Fields fields;
    std::set<std::string> seen;
    Expect('{');
    while (!Take('}')) {
      const std::string key = Text();
      if (!seen.insert(key).second) Damaged(fmt::format("names {} twice", QuotedName(key)));
      Expect(':');
      if (key == "descr") {
        Blanks();
        if (At('\'') || At('"')) {
          fields.descr = Text();
        } else {
          SkipNested();
        }
      } else if (key == "fortran_order") {
        fields.is_fortran_order = Truth();
      } else if (key == "shape") {
        fields.shape = Extents();
      } else {
        Damaged(fmt::format("has a field {}, which the format does not have", QuotedName(key)));
      }
      if (!Take(',') && !(Blanks(), At('}'))) Damaged("is no dict of Python");
    }
    Blanks();
    if (at_ != text_.size()) Damaged("goes on behind its dict");
    for (const char* key : {"descr", "fortran_order", "shape"}) {
      if (!seen.contains(key)) Damaged(fmt::format("has no {}", key));
    }
    return fields;
  }

 private:
  [[noreturn]] void Damaged(const std::string& what) const {
    RefuseArray(fmt::format("its numpy header {}: it is damaged", what), context_);
  }

  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void Blanks() {
    while (At(' ') || At('\n') || At('\t')) ++at_;
  }
  bool Take(char c) {
    Blanks();
    if (!At(c)) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Take(c)) Damaged(fmt::format("has no '{}' at its byte {}", c, at_));
  }

  std::string Text() {
    Blanks();
    if (!At('\'') && !At('"')) Damaged(fmt::format("has no text at its byte {}", at_));
    const char quote = text_[at_++];
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) Damaged("has a text without an end");
    std::string text(text_.substr(at_, end - at_));
    at_ = end + 1;
    return text;
  }

  bool Truth() {
    Blanks();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true},
                                      std::pair<std::string_view, bool>{"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    Damaged("has a fortran_order that is neither True nor False");
  }

  std::vector<int64_t> Extents() {
    constexpr size_t kMostExtents = 64;  // of any array library
    std::vector<int64_t> extents;
    Expect('(');
    while (!Take(')')) {
      Blanks();
      int64_t extent = 0;
      const size_t start = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        if (extent > (int64_t{1} << 58)) Damaged("has an extent beyond any memory");
        extent = extent * 10 + (text_[at_] - '0');
      }
      if (at_ == start) Damaged("has a shape that is no tuple of numbers");
      extents.push_back(extent);
      if (extents.size() > kMostExtents) Damaged("has too many extents");
      // The parentheses of (3) are no tuple, and numpy refuses them.
      if (!Take(',') && (extents.size() == 1 || !(Blanks(), At(')')))) {
        Damaged("has a shape that is no tuple of numbers");
      }
    }
    return extents;
  }

  // The list of a record's fields, which may have texts with brackets in them.
  void SkipNested() {
    int depth = 0;
    do {
      Blanks();
      if (at_ >= text_.size()) Damaged("has a descr without an end");
      const char c = text_[at_];
      if (c == '\'' || c == '"') {
        Text();
        continue;
      }
      depth += c == '[' || c == '(' ? 1 : c == ']' || c == ')' ? -1 : 0;
      if (depth < 0 || (depth == 0 && c != ']' && c != ')')) {
        Damaged("has a descr that names no type");
      }
      ++at_;
    } while (depth > 0);
  }

  std::string_view text_;
  const std::string& context_;
  size_t at_ = 0;
};

struct TypeCode {
  std::string_view code;
  DType dtype;
};
constexpr std::array<TypeCode, 12> kTypes = {{{"f8", DType::kFloat64},
                                              {"f4", DType::kFloat32},
                                              {"f2", DType::kFloat16},
                                              {"i1", DType::kInt8},
                                              {"i2", DType::kInt16},
                                              {"i4", DType::kInt32},
                                              {"i8", DType::kInt64},
                                              {"u1", DType::kUInt8},
                                              {"u2", DType::kUInt16},
                                              {"u4", DType::kUInt32},
                                              {"u8", DType::kUInt64},
                                              {"b1", DType::kBool}}};

// numpy's code of a type: '<f4'. Sets problem where it is none of kvcheck's.
void ReadType(const std::string& descr, std::optional<DType> codes, NumpyHeader* header) {
  if (descr.empty()) {
    header->problem = "it is an array of records: save each field as an array of its own";
    return;
  }
  const char order = descr.front();
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  const std::string code = descr.substr(has_order ? 1 : 0);
  header->is_big_endian = order == '>';
  for (const TypeCode& type : kTypes) {
    if (type.code != code) continue;
    header->dtype = type.dtype;
    return;
  }
  if (code == "O") {
    header->problem =
        "it is an array of Python objects, which numpy pickles: reading it would run code. Save "
        "numbers, each array under a name of its own (numpy.savez)";
    return;
  }
  // ml_dtypes: float8_e5m2 says f1, the others V1 and V2.
  if (code == "V1" || code == "V2" || code == "f1") {
    const size_t width = code == "V2" ? 2 : 1;
    if (codes && SizeInBytes(*codes) == width) {
      header->dtype = *codes;
      return;
    }
    header->problem = fmt::format(
        "numpy has no name for its type and says {}: {} bytes an element. Say which type that is "
        "behind the file, as in FILE:{}, or save the codes (array.view(numpy.uint{}))",
        QuotedName(descr), width, width == 2 ? "bf16" : "f8e4m3fn", 8 * width);
    return;
  }
  header->problem = fmt::format("its type {} is not one of kvcheck's", QuotedName(descr));
}

}  // namespace

NumpyHeader ParseNumpyHeader(std::string_view start, std::optional<DType> codes,
                             const std::string& context) {
  constexpr size_t kBeforeLength = 8;  // the signature and the version
  if (!start.starts_with(kNumpySignature) || start.size() < kBeforeLength + 4) {
    RefuseArray("it is no array of numpy, or cut off", context);
  }
  const int version = static_cast<unsigned char>(start[6]);
  if (version < 1 || version > 3) {
    RefuseArray(fmt::format("it has version {} of numpy's format, and 1 to 3 are read", version),
                context);
  }
  const size_t width = version == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = width; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(start[kBeforeLength + i]);
  }
  const size_t before = kBeforeLength + width;
  if (length > start.size() - before) {
    RefuseArray(
        fmt::format("it announces a header of {} bytes, and {} follow: it is cut off, damaged, "
                    "or has a header longer than any array of numbers needs",
                    length, start.size() - before),
        context);
  }
  HeaderParser::Fields fields = HeaderParser(start.substr(before, length), context).Parse();
  NumpyHeader header;
  header.bytes = static_cast<int64_t>(before + length);
  header.is_fortran_order = fields.is_fortran_order;
  header.shape = std::move(fields.shape);
  ReadType(fields.descr, codes, &header);
  return header;
}

NumpyArray::NumpyArray(NumpyHeader header, int64_t bytes, ReadBytes read, const ReadLimits& limits,
                       const std::string& context)
    : header_(std::move(header)), read_(std::move(read)) {
  if (header_.problem.empty() && header_.shape.size() > static_cast<size_t>(kMaxTensorRank)) {
    header_.problem =
        fmt::format("rank {}, at most {} is read", header_.shape.size(), kMaxTensorRank);
  }
  record_.problem = header_.problem;
  if (!record_.problem.empty()) return;
  record_.is_dataset = true;
  record_.dtype = header_.dtype;
  for (const int64_t extent : header_.shape) record_.shape.axes.push_back({"", extent});
  const std::optional<int64_t> size =
      BoundedBytes(record_.shape, record_.dtype, limits.max_tensor_bytes);
  if (!size) {
    RefuseArray(fmt::format("its array of {} exceeds the limit of {} bytes",
                            ToString(record_.shape), limits.max_tensor_bytes),
                context);
  }
  const int64_t have = bytes - header_.bytes;
  if (have < *size) {
    RefuseArray(fmt::format("its array needs {} bytes and {} follow the header: it is cut off",
                            *size, have),
                context);
  }
  if (have > *size) {
    RefuseArray(
        fmt::format("{} bytes follow its array: where several were saved one behind the other, "
                    "save them with numpy.savez, each under a name",
                    have - *size),
        context);
  }
  // Of fewer than two axes that are longer than 1 both orders are one.
  const auto longer = std::count_if(header_.shape.begin(), header_.shape.end(),
                                    [](int64_t extent) { return extent > 1; });
  if (longer < 2 || *size == 0) header_.is_fortran_order = false;
  if (header_.is_fortran_order && *size > kMostNumpyBytesInMemory) {
    record_ = {};
    record_.problem = fmt::format(
        "it is in Fortran order and has more than {} bytes: save numpy.ascontiguousarray of it",
        kMostNumpyBytesInMemory);
    return;
  }
  const bool as_it_is =
      !header_.is_fortran_order && (!header_.is_big_endian || SizeInBytes(record_.dtype) == 1);
  if (as_it_is) record_.data_offset = header_.bytes;
}

void NumpyArray::InRowMajorOrder() {
  const size_t width = SizeInBytes(record_.dtype);
  const auto elements = static_cast<size_t>(record_.shape.ElementCount());
  std::vector<std::byte> stored(elements * width);
  read_(header_.bytes, stored.data(), stored.size());
  ordered_.resize(stored.size());
  // The indices of the element in row-major order, the last counting fastest.
  const std::vector<int64_t>& shape = header_.shape;
  std::vector<int64_t> index(shape.size(), 0);
  std::vector<size_t> step(shape.size(), 1);
  for (size_t a = 1; a < shape.size(); ++a)
    step[a] = step[a - 1] * static_cast<size_t>(shape[a - 1]);
  size_t at = 0;
  for (size_t i = 0; i < elements; ++i) {
    std::copy_n(stored.data() + at * width, width, ordered_.data() + i * width);
    for (size_t a = shape.size(); a-- > 0;) {
      at += step[a];
      if (++index[a] < shape[a]) break;
      at -= step[a] * static_cast<size_t>(shape[a]);
      index[a] = 0;
    }
  }
}

void NumpyArray::ReadElements(int64_t first, int64_t count, std::byte* out) {
  const auto width = static_cast<int64_t>(SizeInBytes(record_.dtype));
  const auto bytes = static_cast<size_t>(count * width);
  if (bytes == 0) return;
  if (header_.is_fortran_order) {
    if (ordered_.empty()) InRowMajorOrder();
    std::copy_n(ordered_.data() + first * width, bytes, out);
  } else {
    read_(header_.bytes + first * width, out, bytes);
  }
  if (!header_.is_big_endian || width == 1) return;
  for (int64_t i = 0; i < count; ++i) std::reverse(out + i * width, out + (i + 1) * width);
}

std::string ConvertCommand(const std::string& path) {
  return fmt::format(
      "it is a pickle, as torch.save writes it, which is not read; the Python package makes "
      "safetensors of it, and runs no code of it: kvcheck convert {} {}.safetensors",
      std::filesystem::path(path).filename().string(), TensorNameOfFile(path));
}

std::string TensorNameOfFile(const std::string& path) {
  const std::string name = std::filesystem::path(path).stem().string();
  return name.empty() ? "array" : name;
}

NumpyFile::NumpyFile(const std::string& path, std::optional<DType> codes, const ReadLimits& limits)
    : file_(path) {
  std::string start(std::min(kMostNumpyHeaderBytes, static_cast<size_t>(file_.size())), '\0');
  file_.ReadAt(0, start.data(), start.size());
  array_ = std::make_unique<NumpyArray>(
      ParseNumpyHeader(start, codes, path), file_.size(),
      [this](int64_t offset, std::byte* out, size_t count) { file_.ReadAt(offset, out, count); },
      limits, path);
  file_.ThrowIfChanged();
  index_.objects["/"].attributes[kNamedByFile] = int64_t{1};
  index_.objects["/" + TensorNameOfFile(path)] = array_->record();
}

void NumpyFile::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                             std::byte* out) {
  const ObjectRecord& record = DatasetRecord(*this, dataset);
  KVCHECK_CHECK(first >= 0 && count >= 0 && first <= record.shape.ElementCount() - count,
                "elements outside of the tensor");
  {
    const std::lock_guard lock(reading_);
    array_->ReadElements(first, count, out);
  }
  file_.ThrowIfChanged();
}

struct NumpyArchive::State {
  State(const std::string& path, std::optional<DType> codes, const ReadLimits& limits)
      : file(path), archive(file, limits.max_objects, limits.progress) {
    index.objects["/"];
    int64_t total = 0;
    bool has_array = false;
    for (const ZipMember& member : archive.members()) {
      if (limits.progress) limits.progress();
      const std::string& name = member.name;
      const bool is_array = name.ends_with(kNumpyEnding) && name.size() > kNumpyEnding.size();
      const std::string dataset =
          "/" + (is_array ? name.substr(0, name.size() - kNumpyEnding.size()) : name);
      ObjectRecord record;
      if (is_array) {
        has_array = true;
        record = RecordOf(member, codes, limits);
      } else {
        record.problem = "it is no array of numpy (NAME.npy)";
        if (name.ends_with("/data.pkl") || name == "data.pkl") RefusePickle();
      }
      if (record.is_dataset) {
        total += record.shape.ElementCount() * static_cast<int64_t>(SizeInBytes(record.dtype));
        if (total > limits.max_total_bytes) {
          RefuseArray(
              fmt::format("its arrays exceed the limit of {} bytes", limits.max_total_bytes), path);
        }
      }
      if (!index.objects.emplace(dataset, std::move(record)).second) {
        RefuseArray(
            fmt::format("it has two members for the array {}", QuotedName(dataset.substr(1))),
            path);
      }
    }
    if (!has_array) {
      RefuseArray("it is a ZIP archive without arrays of numpy (NAME.npy, as numpy.savez writes)",
                  path);
    }
  }

  [[noreturn]] void RefusePickle() const { RefuseArray(ConvertCommand(file.path()), file.path()); }

  ObjectRecord RecordOf(const ZipMember& member, std::optional<DType> codes,
                        const ReadLimits& limits) {
    const std::string context = fmt::format("{}: {}", file.path(), QuotedName(member.name));
    NumpyHeader header =
        ParseNumpyHeader(archive.Start(member, kMostNumpyHeaderBytes), codes, context);
    auto array = std::make_unique<NumpyArray>(
        std::move(header), member.bytes,
        [this, &member](int64_t offset, std::byte* out, size_t count) {
          Read(member, offset, out, count);
        },
        limits, context);
    ObjectRecord record = array->record();
    record.data_offset.reset();
    if (record.problem.empty() && member.is_deflated && member.bytes > kMostNumpyBytesInMemory) {
      record = {};
      record.problem = fmt::format(
          "it is compressed and has more than {} bytes: save it with numpy.savez, which does not "
          "compress",
          kMostNumpyBytesInMemory);
    }
    if (record.is_dataset) {
      arrays["/" + member.name.substr(0, member.name.size() - kNumpyEnding.size())] =
          std::move(array);
    }
    return record;
  }

  void Read(const ZipMember& member, int64_t offset, std::byte* out, size_t count) {
    if (!member.is_deflated) {
      if (!checked.contains(&member)) {
        archive.CheckStored(member);
        checked.insert(&member);
      }
      return archive.ReadAt(member, offset, out, count);
    }
    const std::vector<std::byte>& bytes = Inflated(member);
    std::copy_n(bytes.data() + offset, count, out);
  }

  // Kept, since readers go back and forth between the planes of a format; the oldest makes room.
  const std::vector<std::byte>& Inflated(const ZipMember& member) {
    for (const auto& [kept, bytes] : inflated) {
      if (kept == &member) return bytes;
    }
    int64_t total = member.bytes;
    for (const auto& [kept, bytes] : inflated) total += kept->bytes;
    while (total > kMostNumpyBytesInMemory && !inflated.empty()) {
      total -= inflated.front().first->bytes;
      inflated.pop_front();
    }
    std::vector<std::byte> bytes(static_cast<size_t>(member.bytes));
    archive.ReadAll(member, bytes.data());
    inflated.emplace_back(&member, std::move(bytes));
    return inflated.back().second;
  }

  InputFile file;
  ZipArchive archive;
  FileIndex index;
  std::map<std::string, std::unique_ptr<NumpyArray>> arrays;  // by path of the tensor
  std::set<const ZipMember*> checked;                         // stored ones whose CRC is right
  std::list<std::pair<const ZipMember*, std::vector<std::byte>>> inflated;
};

NumpyArchive::NumpyArchive(const std::string& path, std::optional<DType> codes,
                           const ReadLimits& limits)
    : state_(std::make_unique<State>(path, codes, limits)) {}

NumpyArchive::~NumpyArchive() = default;

const std::string& NumpyArchive::path() const { return state_->file.path(); }
const FileIndex& NumpyArchive::index() const { return state_->index; }

void NumpyArchive::ReadElements(const std::string& dataset, int64_t first, int64_t count,
                                std::byte* out) {
  const ObjectRecord& record = DatasetRecord(*this, dataset);
  KVCHECK_CHECK(first >= 0 && count >= 0 && first <= record.shape.ElementCount() - count,
                "elements outside of the tensor");
  state_->arrays.at(dataset)->ReadElements(first, count, out);
}

}  // namespace kvcheck
