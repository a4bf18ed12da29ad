// The optimal quantisers beside values that were computed with 40 digits by another program.

#include "reference/formats/lloyd_max.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace kvcheck {
namespace {

struct Known {
  int d, bits;
  const char* distortion;
  std::vector<const char*> centroids;
};

// Printed digits are those of the value, so that the last may be off by one half.
void ExpectDigits(const Oracle50& value, const std::string& digits) {
  const Oracle50 want = Oracle50::FromString(digits);
  EXPECT_LT(Abs(value - want), Abs(want) * Oracle50(1e-16)) << digits << " " << value.ToString(20);
}

const std::vector<Known>& KnownQuantisers() {
  static const std::vector<Known> known = {
      {64, 1, "0.35838736077767976", {"0.10012590817490123"}},
      {64, 2, "0.11452575680882777", {"0.056514868764109674", "0.18749684942035212"}},
      {64,
       3,
       "0.033390834095932959",
       {"0.030469178931190595", "0.0938322632184229", "0.16616785892527921",
        "0.26391393084465347"}},
      {64,
       4,
       "0.009131517603556276",
       {"0.015919022553989882", "0.048089783209467771", "0.081311768520010171",
        "0.11648675232321762", "0.154925527791833", "0.19885614111978066", "0.25291372822535529",
        "0.33079631137788001"}},
      {64,
       5,
       "0.0023992271483408925",
       {"0.0081561486301737228", "0.024512735482948372", "0.041003965922760241",
        "0.057725708312531719", "0.074783694585769341", "0.092299032363011475",
        "0.11041571052989108", "0.12931146501695344", "0.14921442376019635", "0.17043011905648838",
        "0.19338826091701307", "0.21873036946564804", "0.24749168434700417", "0.28153690613297668",
        "0.32486147194533747", "0.38943403059813226"}},
      {128, 1, "0.36088859368691427", {"0.070661572738094234"}},
      {128, 2, "0.11600007027511493", {"0.039991595197581516", "0.13304152024954908"}},
      {128,
       3,
       "0.033965925793902121",
       {"0.021604310642152251", "0.066585608047421563", "0.11813976699678064",
        "0.18839718597012407"}},
      {128,
       4,
       "0.0093147879537960961",
       {"0.011302496590687006", "0.03415157070425955", "0.057772298777001068",
        "0.082828457307129638", "0.11028836904958946", "0.14180519678335115", "0.18083596375306945",
        "0.23766382676516383"}},
      {128,
       5,
       "0.0024514601552468622",
       {"0.0057955141501665385", "0.017419106062156489", "0.029141711193069293",
        "0.041033888976715356", "0.053173554227759366", "0.065650097195486112",
        "0.07857000425474326", "0.0920650114624605", "0.10630462127232761", "0.12151646062311621",
        "0.13802161575143572", "0.15630100435433254", "0.17713354507702235", "0.20192819257708455",
        "0.23371924808414717", "0.28165640427106339"}},
      {256, 1, "0.36213561776099213", {"0.04991650772160573"}},
      {256, 2, "0.11674003878894341", {"0.028288598940673011", "0.094237782148500459"}},
      {256,
       3,
       "0.034256003601142751",
       {"0.015297487664858348", "0.047166710338676318", "0.08376545687678135",
        "0.13385429007496718"}},
      {256,
       4,
       "0.0094075294292901582",
       {"0.0080083741821570764", "0.024200877695182145", "0.040949196990952765",
        "0.058732107793683653", "0.078249313694336562", "0.10069800755601385",
        "0.12858820061473245", "0.16941043719765346"}},
      {256,
       5,
       "0.0024779422399518198",
       {"0.0041080655477713475", "0.012347671043963252", "0.02065865937328187",
        "0.029091921820097135", "0.037703689602368466", "0.046558528501524182",
        "0.055733428099695854", "0.065323739798909983", "0.075452302118358243",
        "0.08628429931693197", "0.098053081654451203", "0.11110872818963683", "0.12601928606617685",
        "0.14381445117637197", "0.16671740361413484", "0.20145411411622681"}},
      {32, 1, "0.3533565675565612", {"0.14215346377720615"}},
      {32, 2, "0.11160032027841428", {"0.07980192942837908", "0.26331941111662732"}},
      {32,
       3,
       "0.03226106570605712",
       {"0.04285151535326213", "0.13175609621135129", "0.23246056620474648",
        "0.36626824148151504"}},
      {32,
       4,
       "0.0087738256418887456",
       {"0.022329293426648891", "0.067424202699610242", "0.11389602021929106",
        "0.16291948252004044", "0.21619001162863589", "0.27656436593472771", "0.34992452287823819",
        "0.45342819676081525"}},
  };
  return known;
}

TEST(LloydMax, AgreesWithKnownQuantisersInEveryDigit) {
  ASSERT_EQ(KnownQuantisers().size(), 19u);
  for (const Known& known : KnownQuantisers()) {
    const LloydMax found = SolveLloydMax(known.d, known.bits);
    ExpectDigits(found.distortion, known.distortion);
    ASSERT_EQ(found.centroids.size(), known.centroids.size());
    for (size_t i = 0; i < known.centroids.size(); ++i) {
      ExpectDigits(found.centroids[i], known.centroids[i]);
    }
    EXPECT_LT(found.residual, Oracle50(1e-46)) << known.d << " " << known.bits;
  }
}

// One dimension less than anything that is stored, odd ones, and where the density is not concave.
TEST(LloydMax, SolvesEveryDimension) {
  for (const int d : {2, 3, 4, 5, 7, 31, 80, 96, 129, 1024}) {
    double last = 1;
    for (int bits = 1; bits <= 5; ++bits) {
      const LloydMax found = SolveLloydMax(d, bits);
      EXPECT_LT(found.residual, Oracle50(1e-46)) << d << " " << bits;
      const double distortion = found.distortion.ToDouble();
      // No quantiser is below 4^-bits, and a bit gains a factor between 2 and 6.
      EXPECT_GT(distortion, std::pow(4.0, -bits) * (d > 3 ? 1 : 0.1)) << d << " " << bits;
      EXPECT_LT(distortion, last / 2) << d << " " << bits;
      last = distortion;
    }
  }
}

// A uniform coordinate (d = 3): cells of equal length, by hand.
TEST(LloydMax, OfAUniformCoordinateIsAGrid) {
  const LloydMax found = SolveLloydMax(3, 2);
  EXPECT_LT(Abs(found.centroids[0] - Oracle50(0.25)), Oracle50(1e-44));
  EXPECT_LT(Abs(found.centroids[1] - Oracle50(0.75)), Oracle50(1e-44));
  // d / 3 of a cell's half length squared.
  EXPECT_LT(Abs(found.distortion - Oracle50(0.0625)), Oracle50(1e-44));
}

// Max, "Quantizing for minimum distortion", 1960: what a normal distribution has.
TEST(LloydMax, TendsToTheQuantiserOfANormalDistribution) {
  const double normal[] = {0.3634, 0.1175, 0.03454, 0.009497};
  for (int bits = 1; bits <= 4; ++bits) {
    const double distortion = SolveLloydMax(1024, bits).distortion.ToDouble();
    EXPECT_LT(distortion, normal[bits - 1]);
    EXPECT_GT(distortion, normal[bits - 1] * (1 - 6.0 / 1024)) << bits;
  }
}

TEST(LloydMax, CodebookIsAscendingMirroredAndKept) {
  for (const int d : {32, 64, 128, 256, 512}) {
    for (int bits = 1; bits <= 5; ++bits) {
      const std::span<const float> codebook = LloydMaxCodebook(d, bits);
      ASSERT_EQ(codebook.size(), size_t{1} << bits);
      for (size_t i = 0; i < codebook.size(); ++i) {
        EXPECT_EQ(codebook[i], -codebook[codebook.size() - 1 - i]);
        EXPECT_TRUE(i == 0 || codebook[i - 1] < codebook[i]);
      }
      EXPECT_EQ(LloydMaxCodebook(d, bits).data(), codebook.data());
    }
  }
}

}  // namespace
}  // namespace kvcheck
