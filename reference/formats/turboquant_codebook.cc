#include "reference/formats/turboquant_codebook.h"

#include <array>

#include "reference/formats/lloyd_max.h"
#include "reference/spec/error.h"

namespace kvcheck {
namespace {

struct StoredCodebook {
  int d, bits;
  std::array<float, 16> centroids;  // the first 2^bits of them
};

// mlx-vlm 0.7.10 with numpy 2.4.6 on a machine with AVX-512. Its iteration over a grid in f32 stops
// after 100 steps (bits=4) and depends on the vector width of numpy's exp by up to 6e-8, so that
// another machine may have others: a codebook is data.
constexpr StoredCodebook kMlxVlm[] = {
    {32, 1, {-0.142153457f, 0.142153457f}},
    {32, 2, {-0.263283283f, -0.0797833353f, 0.0797833279f, 0.263283253f}},
    {32,
     3,
     {-0.366082758f, -0.232249171f, -0.131584182f, -0.042783916f, 0.0427839197f, 0.131584182f,
      0.232249156f, 0.366082788f}},
    {32,
     4,
     {-0.451370984f, -0.347407967f, -0.273894668f, -0.213596851f, -0.160627723f, -0.112123966f,
      -0.0662934035f, -0.0219310429f, 0.0219310466f, 0.0662934035f, 0.112123966f, 0.160627708f,
      0.213596821f, 0.273894668f, 0.347407997f, 0.451370984f}},
    {64, 1, {-0.100125924f, 0.100125916f}},
    {64, 2, {-0.187454462f, -0.0564936958f, 0.0564936958f, 0.187454447f}},
    {64,
     3,
     {-0.263751388f, -0.16599451f, -0.0936825648f, -0.0304045826f, 0.0304045826f, 0.0936825797f,
      0.16599454f, 0.263751388f}},
    {64,
     4,
     {-0.329139471f, -0.250963986f, -0.196810395f, -0.152957723f, -0.114785776f, -0.0800093561f,
      -0.0472673103f, -0.0156382024f, 0.0156382024f, 0.0472378992f, 0.0799486786f, 0.114725173f,
      0.152897239f, 0.196750194f, 0.2509045f, 0.32908535f}},
    {128, 1, {-0.0706615821f, 0.0706615821f}},
    {128, 2, {-0.133020014f, -0.0400136821f, 0.0399245657f, 0.132971659f}},
    {128,
     3,
     {-0.188288108f, -0.118012115f, -0.0664799884f, -0.0215943903f, 0.0215034541f, 0.0664204061f,
      0.117953412f, 0.188235566f}},
    {128,
     4,
     {-0.236391634f, -0.179339975f, -0.140236318f, -0.108817972f, -0.0815755352f, -0.0568183511f,
      -0.03357042f, -0.0111424848f, 0.0110210404f, 0.0334490128f, 0.05672561f, 0.0815149322f,
      0.108757496f, 0.140176103f, 0.17928043f, 0.236336887f}},
    {256, 1, {-0.0499552973f, 0.0498777404f}},
    {256, 2, {-0.0942034945f, -0.0282718651f, 0.0282718595f, 0.0942035019f}},
    {256,
     3,
     {-0.133712366f, -0.0836123973f, -0.0470436104f, -0.0152489953f, 0.0152489971f, 0.0470436178f,
      0.0836124048f, 0.133712366f}},
    {256,
     4,
     {-0.168522865f, -0.127540648f, -0.0996119156f, -0.0771940202f, -0.0578124076f, -0.0402186327f,
      -0.0237036943f, -0.00783268455f, 0.00783268549f, 0.0237036962f, 0.0402186289f, 0.0578124076f,
      0.0771940276f, 0.0996119007f, 0.127540648f, 0.168522835f}},
};

// vLLM (golden/make/vllm_centroids.py).
constexpr StoredCodebook kVllm[] = {
    {64,
     3,
     {-0.268793702f, -0.167897508f, -0.0944556892f, -0.0306229498f, 0.0306229498f, 0.0944556892f,
      0.167897508f, 0.268793702f}},
    {64,
     4,
     {-0.341365278f, -0.258555889f, -0.202235222f, -0.157032192f, -0.117806032f, -0.0821099877f,
      -0.0485172234f, -0.0160534568f, 0.0160534568f, 0.0485172234f, 0.0821099877f, 0.117806032f,
      0.157032192f, 0.202235222f, 0.258555889f, 0.341365278f}},
    {128,
     3,
     {-0.190065846f, -0.118721463f, -0.0667902604f, -0.021653695f, 0.021653695f, 0.0667902604f,
      0.118721463f, 0.190065846f}},
    {128,
     4,
     {-0.241381705f, -0.182826623f, -0.143001899f, -0.111038528f, -0.0833014399f, -0.0580605306f,
      -0.0343068577f, -0.011351509f, 0.011351509f, 0.0343068577f, 0.0580605306f, 0.0833014399f,
      0.111038528f, 0.143001899f, 0.182826623f, 0.241381705f}},
    {256,
     3,
     {-0.134396851f, -0.0839487538f, -0.0472278446f, -0.0153114749f, 0.0153114749f, 0.0472278446f,
      0.0839487538f, 0.134396851f}},
    {256,
     4,
     {-0.170682639f, -0.129277945f, -0.101117611f, -0.0785160959f, -0.0589030161f, -0.0410549939f,
      -0.0242586117f, -0.00802672841f, 0.00802672841f, 0.0242586117f, 0.0410549939f, 0.0589030161f,
      0.0785160959f, 0.101117611f, 0.129277945f, 0.170682639f}},
};

template <size_t kCount>
std::span<const float> Find(const StoredCodebook (&stored)[kCount], int d, int bits) {
  for (const StoredCodebook& codebook : stored) {
    if (codebook.d == d && codebook.bits == bits) {
      return std::span(codebook.centroids).first(size_t{1} << bits);
    }
  }
  KVCHECK_CHECK(false, "a codebook that no format names");
  return {};
}

}  // namespace

std::span<const float> TurboquantCentroids(const TurboquantFormat& format) {
  switch (format.codebook) {
    case TurboquantCodebook::kMlxVlm:
      return Find(kMlxVlm, format.group_size, format.bits);
    case TurboquantCodebook::kVllm:
      return Find(kVllm, format.group_size, format.bits);
    default:
      return LloydMaxCodebook(format.group_size, format.bits);
  }
}

std::vector<float> ThresholdsBetween(std::span<const float> centroids) {
  std::vector<float> thresholds;
  for (size_t i = 0; i + 1 < centroids.size(); ++i) {
    thresholds.push_back((centroids[i] + centroids[i + 1]) / 2.0f);
  }
  return thresholds;
}

}  // namespace kvcheck
