#include "tools/faults/turboquant_steps.h"

#include <cstring>

#include "reference/formats/affine.h"
#include "reference/formats/codec.h"
#include "reference/formats/turboquant_rotation.h"
#include "reference/numerics/convert.h"

namespace kvcheck {

TensorMap EncodeTurboquant(const TurboquantSteps& steps, const TurboquantFormat& format,
                           const Profile& profile, const CodecCase& c, const Tensor& x) {
  const TurboquantGroup group(format, profile.turboquant);
  const size_t d = group.d();
  CodecCase asked = c;
  asked.direction = CodecDirection::kEncode;
  TensorMap stored;
  for (const auto& [name, spec] : OutputSpecs(asked)) {
    stored.emplace(name, Tensor(spec.dtype, spec.shape));
  }
  std::vector<double> values(d);
  std::vector<float> y(d);
  std::vector<uint8_t> codes(d);
  std::vector<uint32_t> words(d * static_cast<size_t>(format.bits) / 32);
  const int64_t groups = c.rows * c.head_dim / format.group_size;
  for (int64_t g = 0; g < groups; ++g) {
    DecodeTo(x, g * format.group_size, values);
    RoundAll(values, format.row_type);
    y.assign(values.begin(), values.end());
    float norm = TurboquantGroup::Norm(y);
    for (float& value : y) value /= group.Divisor(norm);
    if (steps.rotate != nullptr) {
      steps.rotate(group, y);
    } else {
      Rotate<float>(group.signs(), y);
    }
    for (size_t i = 0; i < d; ++i) {
      codes[i] =
          steps.code != nullptr ? steps.code(group, y[i]) : group.CodeOf(static_cast<double>(y[i]));
    }
    if (steps.stored_norm != nullptr) norm = steps.stored_norm(group, norm);
    if (steps.pack != nullptr) {
      steps.pack(codes, format.bits, words);
    } else {
      PackCodes(codes, format.bits, words);
    }
    const size_t bytes = words.size() * sizeof(uint32_t);
    std::memcpy(stored.at("codes").bytes.data() + static_cast<size_t>(g) * bytes, words.data(),
                bytes);
    const double number = norm;
    EncodeFrom({&number, 1}, DType::kFloat16,
               stored.at("norms").bytes.data() + 2 * static_cast<size_t>(g));
  }
  return stored;
}

std::vector<double> DecodeTurboquant(const TurboquantSteps& steps, const TurboquantFormat& format,
                                     const Profile& profile, const TensorMap& stored) {
  const TurboquantGroup group(format, profile.turboquant);
  const size_t d = group.d();
  const EncodedRows rows = CodecRows(format, stored);
  std::vector<double> norms(static_cast<size_t>(rows.planes[1]->ElementCount()));
  DecodeTo(*rows.planes[1], 0, norms);
  std::vector<uint8_t> codes(d);
  std::vector<uint32_t> words(d * static_cast<size_t>(format.bits) / 32);
  std::vector<float> y(d);
  std::vector<double> values;
  for (size_t g = 0; g < norms.size(); ++g) {
    const size_t bytes = words.size() * sizeof(uint32_t);
    std::memcpy(words.data(), rows.planes[0]->bytes.data() + g * bytes, bytes);
    UnpackCodes(words, format.bits, codes);
    for (size_t i = 0; i < d; ++i) {
      y[i] =
          steps.centroid != nullptr ? steps.centroid(group, codes[i]) : group.centroids()[codes[i]];
    }
    if (steps.rotate_back != nullptr) {
      steps.rotate_back(group, y);
    } else {
      RotateBack<float>(group.signs(), y);
    }
    const auto norm = static_cast<float>(norms[g]);
    for (float& value : y) value *= steps.read_norm != nullptr ? steps.read_norm(norm) : norm;
    if (steps.read != nullptr) steps.read(y);
    values.insert(values.end(), y.begin(), y.end());
  }
  RoundAll(values, format.row_type);
  return values;
}

}  // namespace kvcheck
