"""GPU models by the words in their names: generation, wave size, multiply-adds per clock.

Each table names its source: a vendor's public document or public driver code. No figure was measured here unless the
device's file in descriptions/ says so.
"""

from __future__ import annotations

# Generation, wave size and float32 multiply-adds per core and clock. Source: Arm's "Arm GPU Datasheet". Midgard has
# vector pipelines instead of waves.
MALI: dict[str, tuple[str, int, int]] = {
    **dict.fromkeys(("T604", "T620", "T622", "T624", "T628", "T658", "T678"), ("midgard", 1, 8)),
    **dict.fromkeys(("T720", "T760", "T820", "T830", "T860", "T880"), ("midgard", 1, 10)),
    **dict.fromkeys(("G31", "G51"), ("bifrost1", 4, 8)),
    "G71": ("bifrost1", 4, 12),
    "G72": ("bifrost2", 4, 12),
    "G52": ("bifrost2", 8, 24),
    "G76": ("bifrost3", 8, 24),
    **dict.fromkeys(("G57", "G77", "G68", "G78"), ("valhall", 16, 32)),
    **dict.fromkeys(("G310", "G510", "G610", "G710"), ("valhall", 16, 64)),
    **dict.fromkeys(("G615", "G715"), ("valhall", 16, 128)),
    **dict.fromkeys(("G620", "G625", "G720", "G725", "G925"), ("fifth", 16, 128)),
    **dict.fromkeys(("G1-ULTRA", "G1-PREMIUM", "G1-PRO"), ("fifth", 16, 128)),
}

# Names of products during development, which some drivers report: "Mali-LODX r0p0" is the G610 of an RK3588. Source:
# Arm's kernel driver (mali_kbase_gpu_id.h); the letters of the tables are GPU_ID2_PRODUCT_*.
MALI_CODENAMES = {
    "TMIX": "G71",
    "THEX": "G72",
    "TSIX": "G51",
    "TNOX": "G76",
    "TDVX": "G31",
    "TGOX": "G52",
    "TTRX": "G77",
    "TNAX": "G57",
    "TBEX": "G78",
    "LBEX": "G68",
    "TBAX": "G78",
    "TODX": "G710",
    "LODX": "G610",
    "TGRX": "G510",
    "TVAX": "G310",
    "TTUX": "G715",
    "LTUX": "G615",
    "TTIX": "G720",
    "LTIX": "G620",
    "TKRX": "G925",
    "LKRX": "G625",
}

# Adreno models whose first digit is not their series, most of them of Windows laptops. Sources: Qualcomm's product
# pages; Mesa's list of GPUs (freedreno_devices.py), which counts X1-45 and X1-85 to the 7xx series, X2-85 and X2-90 to
# the 8xx series, and the 702 to the 6xx series.
ADRENO_SERIES = {"X1": 7, "X2": 8, "8CX": 6, "7C": 6, "702": 6}

# Most waves in flight in a compute unit of an Adreno, and bytes of its registers, by model, else by series. Source:
# TensorFlow Lite's GPU delegate (gpu_info.cc, AdrenoInfo).
ADRENO_REGISTERS = {
    "640": (30, 128 * 144 * 16),
    **dict.fromkeys(("620", "650", "660"), (16, 128 * 64 * 16)),
    **dict.fromkeys(("6xx", "7xx"), (16, 128 * 96 * 16)),
}

# Multiply-adds per clock and multiprocessor. Source: NVIDIA's CUDA C++ Programming Guide, table of arithmetic
# throughput. The first match wins: workstation cards repeat the numbers of other generations.
NVIDIA = (
    (r"RTX \d{3,4}\w* (?:SFF )?Ada|RTX 40\d\d(?! )|GeForce RTX 40\d\d|\bL[24]0?S?\b|\bAD10\d", "ada", 128),
    (r"RTX 20\d\d|GTX 16\d\d|\bT4G?\b|\bT\d{3,4}\b|Quadro RTX|TITAN RTX|\bMX4[35]0\b|\bTU1\d\d\b", "turing", 64),
    (r"\bGB?[23]\d\d\b|\bB[123]00\b|RTX (?:PRO )?50\d\d|RTX PRO|\bGB10\b|\bThor\b", "blackwell", 128),
    (r"\bG?H[128]00\b|\bH20\b", "hopper", 128),
    (r"RTX 30\d\d|RTX A\d{4}|\bA(?:2|10|10G|16|30|40|100X?|800)\b|Orin|\bMX570\b|\bGA10\d", "ampere", 128),
    (r"V100|TITAN V\b|Xavier", "volta", 64),
    (r"GTX 10\d\d|\bP(?:4|6|40|100|\d{4})\b|TITAN X[Pp]|GT 10\d\d|\bMX[1-3]\d\d\b|\bGP10\d", "pascal", 128),
    (r"GTX 9\d\d|GTX 75\d|\bM(?:4|6|10|40|60|\d{4})\b|9\d\dM\b|Tegra X1|Nano", "maxwell", 128),
    (r"\bK\d{1,2}\b|GTX [67]\d\d|GT 7\d\d|Quadro K|Tegra K1", "kepler", 192),
)

# AMD GPUs by the name of the chip (Mesa and Apple report it) and of the card. Source: Mesa's amd_family.c; AMD's
# product pages. Wave sizes: AMD's instruction set documents.
AMD = (
    (r"\bcayman|\bturks|\bcaicos|\bbarts|\bcypress|\bjuniper|\bredwood|\bcedar", "terascale", 64),
    (
        r"\btahiti|\bpitcairn|\b(?:cape)?verde\b|\bhainan|\bhawaii|\bbonaire|\boland|\btonga|\btopaz|\biceland|"
        r"\bfiji|\bvegam|\bellesmere|\bbaffin|\bpolaris|\bkaveri|\bkabini|\bcarrizo|\bstoney|\bspectre|\bspooky|"
        r"\bkalindi|\bmullins|RX [45]\d0\b",
        "gcn",
        64,
    ),
    (r"\bvega|\braven|\bpicasso|\brenoir|\blucienne|\bcezanne|\bbarcelo", "gcn5", 64),
    (r"\bnavi ?1\d|RX 5\d{3}\b", "rdna1", 32),
    (
        r"\bnavi ?2\d|\bvan ?gogh|\brembrandt|\braphael|\bmendocino|RX 6\d{3}|\b6[68]0M\b|Xclipse (?:53|9[23])0",
        "rdna2",
        32,
    ),
    (r"\bnavi ?3\d|\bphoenix|\bhawk|RX 7\d{3}|\b7[4-8]0M\b|PRO W7\d{3}|Xclipse (?:54|9[45])0", "rdna3", 32),
    (r"\bstrix|\bkrackan|\b8[0-9]{2}M\b|\b80[456]0S\b", "rdna3.5", 32),
    (r"\bnavi ?4\d|RX 9\d{3}\b|AI PRO R9\d{3}", "rdna4", 32),
    (r"Xclipse", "", 32),
)

# AMD GPUs by the number after "gfx", the first match of its beginning. Source: LLVM's AMDGPU user guide.
AMD_GFX = (
    ("120", "rdna4", 32),
    ("115", "rdna3.5", 32),
    ("110", "rdna3", 32),
    ("103", "rdna2", 32),
    ("101", "rdna1", 32),
    ("908", "cdna", 64),
    ("90a", "cdna", 64),
    ("94", "cdna", 64),
    ("95", "cdna", 64),
    ("90", "gcn5", 64),
    ("6", "gcn", 64),
    ("7", "gcn", 64),
    ("8", "gcn", 64),
)

# Source: Intel's compute runtime, table of platforms by device number, which the name holds ("Graphics [0x46a6]") where
# the driver is older than the device; names as that driver, Mesa's and Beignet report them.
# Lanes of a compute unit (an execution unit or vector engine): Intel's GPU architecture documents.
INTEL = (
    (r"\[0x(?:b0[89ab]|fd8)|Arc\D{1,14}B3\d0|\bPTL\b", "xe3", 16),
    (r"\[0x(?:64[2ab]0|e2)|Arc\D{1,14}B\d|Arc\D{1,14}1[34]0V|\bBMG\b|\bLNL\b", "xe2", 16),
    (r"\[0x7d|Arc\D{1,14}1[34]0T|\bMTL\b|\bARL\b|Arc\D{1,6}Graphics", "xe-lpg", 8),
    (r"\[0x(?:56[9abc]|4f8)|Arc\D{1,14}A\d|\bDG2\b|\bATS-M|Data Center GPU Flex", "xe-hpg", 8),
    (r"\[0x0b[de6]|Data Center GPU Max|\bPVC\b", "xe-hpc", 16),
    (
        r"\[0x(?:9a|4c|46|a7|490)|Iris\D{1,6}Xe|UHD\D{0,12}7[0-9]{2}|UHD\D{0,16}1[1-4]th Gen|"
        r"\bTGL\b|\bRKL\b|\bADL|\bRPL|\bDG1\b",
        "xe-lp",
        8,
    ),
    (r"\[0x(?:8a|45|4e)|Iris\D{1,6}Plus Graphics(?! 6\d\d)|\bICL\b|\bEHL\b|\bJSL\b|Gen11", "gen11", 8),
    (
        r"\[0x(?:19|59|5a|3e|9b|31|87)|HD\D{0,12}[56]\d{2}\b|Plus Graphics 6\d\d|Iris\D{1,20}5[4-8]\d\b|"
        r"\bSKL|\bKBL|\bCFL|\bCML|\bAPL|\bGLK|Gen9|(?i:skylake|kabylake|coffee lake|broxton)",
        "gen9",
        8,
    ),
    (r"HD\D{0,12}(?:5300|5500|5600|6000|P5700)|Iris\D{1,20}6[12]00|\bBDW|Gen8|(?i:broadwell|cherryview)", "gen8", 8),
    (r"HD\D{0,12}(?:4\d{3}|5000|2500)|Iris\D{1,20}5[12]00|\bHSW|\bIVB|Gen7|(?i:haswell|ivybridge|bay tr)", "gen7", 8),
)

# Names of PowerVR series and models. Source: Imagination's product pages.
POWERVR = (
    (r"\bD-Series|\bDXT|\bDXS|\bDXD", "d-series"),
    (r"\bC-Series|\bCX[A-Z]\b", "c-series"),
    (r"\bB-Series|\bBX[A-Z]\b", "b-series"),
    (r"\bA-Series|\bAX[A-Z]\b", "a-series"),
    (r"\bGT8\d{3}", "furian"),
    (r"\bSGX", "sgx"),
)
