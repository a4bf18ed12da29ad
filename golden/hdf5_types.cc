#include "golden/hdf5_types.h"

#include <fmt/format.h>

#include <string_view>

#include "reference/spec/error.h"

namespace kvcheck {
namespace {

Hdf5Handle Copy(hid_t type) {
  Hdf5Handle copy(H5Tcopy(type), H5Tclose);
  KVCHECK_CHECK(copy.valid(), "HDF5 cannot copy a built-in type");
  return copy;
}

// A sign bit, exponent_bits, mantissa_bits, in 16 bits.
Hdf5Handle HalfWidthFloat(size_t exponent_bits, size_t mantissa_bits, size_t bias) {
  Hdf5Handle type = Copy(H5T_IEEE_F32LE);
  const bool made =
      H5Tset_fields(type.get(), 15, mantissa_bits, exponent_bits, 0, mantissa_bits) >= 0 &&
      H5Tset_precision(type.get(), 16) >= 0 && H5Tset_size(type.get(), 2) >= 0 &&
      H5Tset_ebias(type.get(), bias) >= 0;
  KVCHECK_CHECK(made, "HDF5 cannot describe a 16-bit float");
  return type;
}

Hdf5Handle Float16Type() { return HalfWidthFloat(5, 10, 15); }
Hdf5Handle BFloat16Type() { return HalfWidthFloat(8, 7, 127); }

bool Same(hid_t a, hid_t b) { return H5Tequal(a, b) > 0; }

// h5py's booleans: an enumeration FALSE = 0, TRUE = 1 over int8. Over any other integer HDF5 would
// convert what it reads.
bool IsBooleanEnumeration(hid_t type) {
  if (H5Tget_class(type) != H5T_ENUM || H5Tget_size(type) != 1 || H5Tget_nmembers(type) != 2) {
    return false;
  }
  const Hdf5Handle base(H5Tget_super(type), H5Tclose);
  if (!base.valid() || !(Same(base.get(), H5T_STD_I8LE) || Same(base.get(), H5T_STD_I8BE))) {
    return false;
  }
  for (unsigned i = 0; i < 2; ++i) {
    char* name = H5Tget_member_name(type, i);
    signed char value = -1;
    const bool fits = name != nullptr && H5Tget_member_value(type, i, &value) >= 0 &&
                      std::string_view(name) == (value == 0 ? "FALSE" : "TRUE") &&
                      (value == 0 || value == 1);
    H5free_memory(name);
    if (!fits) return false;
  }
  return true;
}

}  // namespace

Hdf5Handle StorageType(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return Copy(H5T_IEEE_F64LE);
    case DType::kFloat32:
      return Copy(H5T_IEEE_F32LE);
    case DType::kFloat16:
      return Float16Type();
    case DType::kInt8:
      return Copy(H5T_STD_I8LE);
    case DType::kInt16:
      return Copy(H5T_STD_I16LE);
    case DType::kInt32:
      return Copy(H5T_STD_I32LE);
    case DType::kInt64:
      return Copy(H5T_STD_I64LE);
    case DType::kBFloat16:
    case DType::kUInt16:
      return Copy(H5T_STD_U16LE);
    case DType::kUInt32:
      return Copy(H5T_STD_U32LE);
    case DType::kUInt64:
      return Copy(H5T_STD_U64LE);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
    case DType::kFloat8E8M0FNU:
    case DType::kFloat4E2M1FN:
    case DType::kUInt8:
    case DType::kBool:
      return Copy(H5T_STD_U8LE);
  }
  KVCHECK_CHECK(false, "a dtype without storage");
}

Hdf5Handle MemoryType(hid_t file_type) {
  if (H5Tget_class(file_type) == H5T_ENUM) return Copy(H5T_STD_I8LE);
  Hdf5Handle type(H5Tcopy(file_type), H5Tclose);
  if (type.valid() && H5Tget_order(type.get()) == H5T_ORDER_BE) {
    H5Tset_order(type.get(), H5T_ORDER_LE);
  }
  return type;
}

std::optional<DType> DTypeOfFileType(hid_t file_type) {
  if (IsBooleanEnumeration(file_type)) return DType::kBool;
  const H5T_class_t type_class = H5Tget_class(file_type);
  if (type_class != H5T_FLOAT && type_class != H5T_INTEGER) return std::nullopt;
  const Hdf5Handle little = MemoryType(file_type);
  if (!little.valid()) return std::nullopt;
  for (DType dtype : {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kInt8,
                      DType::kInt16, DType::kInt32, DType::kInt64, DType::kUInt8, DType::kUInt16,
                      DType::kUInt32, DType::kUInt64}) {
    if (Same(little.get(), StorageType(dtype).get())) return dtype;
  }
  if (Same(little.get(), BFloat16Type().get())) return DType::kBFloat16;
  return std::nullopt;
}

std::string TypeText(hid_t file_type) {
  const size_t bits = 8 * H5Tget_size(file_type);
  switch (H5Tget_class(file_type)) {
    case H5T_INTEGER:
      return fmt::format("{}integers of {} bits",
                         H5Tget_sign(file_type) == H5T_SGN_NONE ? "unsigned " : "", bits);
    case H5T_FLOAT:
      return fmt::format("an unusual float of {} bits", bits);
    case H5T_STRING:
      return "texts";
    case H5T_BITFIELD:
      return "bit fields";
    case H5T_OPAQUE:
      return "opaque bytes";
    case H5T_COMPOUND:
      return "a compound";
    case H5T_REFERENCE:
      return "references";
    case H5T_ENUM:
      return "an enumeration";
    case H5T_VLEN:
      return "sequences of variable length";
    case H5T_ARRAY:
      return "arrays";
    default:
      return "an unknown one";
  }
}

bool IsLittleEndian(hid_t file_type) {
  return H5Tget_size(file_type) == 1 || H5Tget_order(file_type) == H5T_ORDER_LE;
}

bool MayHold(hid_t file_type, DType dtype) {
  if (DTypeOfFileType(file_type) == dtype) return true;
  const Hdf5Handle little = MemoryType(file_type);
  return little.valid() && Same(little.get(), StorageType(dtype).get());
}

}  // namespace kvcheck
