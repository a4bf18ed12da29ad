#include "golden/hdf5_attribute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "golden/hdf5_handle.h"
#include "golden/schema.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

constexpr size_t kMaxAttributes = 64;
constexpr size_t kMaxStoredTextBytes = 65536;

// Reads one text of `type`, fixed or of variable length, from a scalar attribute.
std::optional<std::string> ReadText(hid_t attribute, hid_t type) {
  const htri_t variable = H5Tis_variable_str(type);
  if (variable < 0) return std::nullopt;
  if (variable > 0) {
    char* text = nullptr;
    if (H5Aread(attribute, type, static_cast<void*>(&text)) < 0) return std::nullopt;
    if (text == nullptr) return std::string();
    const size_t length = strnlen(text, kMaxStoredTextBytes + 1);
    std::optional<std::string> result;
    if (length <= kMaxStoredTextBytes) result.emplace(text, length);
    H5free_memory(text);
    return result;
  }
  const size_t size = H5Tget_size(type);
  if (size == 0 || size > kMaxStoredTextBytes) return std::nullopt;
  std::string text(size, '\0');
  if (H5Aread(attribute, type, text.data()) < 0) return std::nullopt;
  // Padding: NULs at the end, whatever the declared kind; a NUL inside is refused later.
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

std::optional<AttributeValue> ReadScalar(hid_t attribute) {
  const Hdf5Handle space(H5Aget_space(attribute), H5Sclose);
  const Hdf5Handle type(H5Aget_type(attribute), H5Tclose);
  if (!space.valid() || !type.valid()) return std::nullopt;
  if (H5Sget_simple_extent_type(space.get()) != H5S_SCALAR) return std::nullopt;
  switch (H5Tget_class(type.get())) {
    case H5T_STRING: {
      const std::optional<std::string> text = ReadText(attribute, type.get());
      if (!text || !IsGoldenText(*text)) return std::nullopt;
      return AttributeValue(*text);
    }
    case H5T_INTEGER: {
      if (H5Tget_size(type.get()) > sizeof(int64_t)) return std::nullopt;
      int64_t value = 0;
      if (H5Aread(attribute, H5T_NATIVE_INT64, &value) < 0) return std::nullopt;
      return AttributeValue(value);
    }
    default:
      return std::nullopt;
  }
}

std::vector<std::string> AttributeNames(hid_t object, const std::string& where,
                                        const std::string& path) {
  std::vector<std::string> names;
  hsize_t position = 0;
  const herr_t status = H5Aiterate2(
      object, H5_INDEX_NAME, H5_ITER_NATIVE, &position,
      [](hid_t, const char* name, const H5A_info_t*, void* out) -> herr_t {
        auto* list = static_cast<std::vector<std::string>*>(out);
        list->emplace_back(name);
        return list->size() > kMaxAttributes ? -1 : 0;
      },
      &names);
  if (names.size() > kMaxAttributes) {
    throw Error(ErrorCode::kUnreadableFile,
                fmt::format("{}: more than {} attributes", where, kMaxAttributes), path);
  }
  CheckHdf5(status, fmt::format("{}: its attributes cannot be listed", where), path);
  return names;
}

}  // namespace

std::map<std::string, AttributeValue> ReadAttributes(hid_t object, const std::string& where,
                                                     const std::string& path) {
  std::map<std::string, AttributeValue> values;
  for (const std::string& name : AttributeNames(object, where, path)) {
    const std::string what = fmt::format("{}: attribute '{}' cannot be read", where, name);
    const Hdf5Handle attribute =
        OwnHdf5(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose, what, path);
    const std::optional<AttributeValue> value = ReadScalar(attribute.get());
    if (!value) {
      throw Error(ErrorCode::kUnreadableFile,
                  what + ": it is not a text in UTF-8 or an integer, or it is damaged", path);
    }
    if (!values.emplace(name, *value).second) {
      throw Error(ErrorCode::kUnreadableFile,
                  fmt::format("{}: attribute '{}' is there twice", where, name), path);
    }
  }
  return values;
}

bool HasAttribute(hid_t object, const std::string& name) {
  return H5Aexists(object, name.c_str()) > 0;
}

std::optional<AttributeValue> TryReadAttribute(hid_t object, const std::string& name) {
  if (!HasAttribute(object, name)) return std::nullopt;
  const Hdf5Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) return std::nullopt;
  return ReadScalar(attribute.get());
}

std::vector<std::string> DimensionLabels(hid_t dataset, size_t rank) {
  if (!HasAttribute(dataset, "DIMENSION_LABELS")) return {};
  const Hdf5Handle attribute(H5Aopen(dataset, "DIMENSION_LABELS", H5P_DEFAULT), H5Aclose);
  if (!attribute.valid()) return {};
  const Hdf5Handle space(H5Aget_space(attribute.get()), H5Sclose);
  const Hdf5Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (!space.valid() || !type.valid() || H5Tis_variable_str(type.get()) <= 0 ||
      H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(rank)) {
    return {};
  }
  std::vector<char*> texts(rank, nullptr);
  if (H5Aread(attribute.get(), type.get(), static_cast<void*>(texts.data())) < 0) return {};
  std::vector<std::string> labels;
  for (char* text : texts) {
    labels.emplace_back(text == nullptr ? "" : text, text == nullptr ? 0 : strnlen(text, 64));
    H5free_memory(text);
  }
  return labels;
}

void WriteAttribute(hid_t object, const std::string& name, const AttributeValue& value,
                    const std::string& path) {
  const std::string what = fmt::format("attribute '{}' cannot be written", name);
  const Hdf5Handle space = OwnHdf5(H5Screate(H5S_SCALAR), H5Sclose, what, path);
  const auto* text = std::get_if<std::string>(&value);
  const Hdf5Handle type =
      OwnHdf5(H5Tcopy(text != nullptr ? H5T_C_S1 : H5T_STD_I64LE), H5Tclose, what, path);
  if (text != nullptr) {
    // HDF5 has no string of length 0: the empty text is one NUL of padding.
    CheckHdf5(H5Tset_size(type.get(), std::max<size_t>(1, text->size())), what, path);
    CheckHdf5(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), what, path);
    CheckHdf5(H5Tset_cset(type.get(), H5T_CSET_UTF8), what, path);
  }
  const Hdf5Handle attribute =
      OwnHdf5(H5Acreate2(object, name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
              H5Aclose, what, path);
  const void* data = text != nullptr ? static_cast<const void*>(text->c_str())
                                     : static_cast<const void*>(&std::get<int64_t>(value));
  CheckHdf5(H5Awrite(attribute.get(), text != nullptr ? type.get() : H5T_NATIVE_INT64, data), what,
            path);
}

}  // namespace kvcheck
