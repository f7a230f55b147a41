#include "words.h"

static const char *const adjectives[] = {
    "ancient",  "anxious", "awkward",  "bouncy",   "brave",    "brisk",   "brittle",  "broad",  "bronze",  "bumpy",
    "calm",     "careful", "cheerful", "chilly",   "civil",    "clever",  "clumsy",   "coarse", "crisp",   "crooked",
    "cunning",  "damp",    "daring",   "dazzling", "delicate", "dense",   "devoted",  "dim",    "distant", "dizzy",
    "docile",   "dreamy",  "drowsy",   "dusty",    "eager",    "earnest", "enormous", "fabled", "faint",   "faithful",
    "fearless", "flimsy",  "foggy",    "fond",     "formal",   "fragile", "fragrant", "frosty", "frugal",  "gallant",
    "gentle",   "ghostly", "giddy",    "gilded",   "gloomy",   "golden",  "graceful", "grand",  "greedy",  "grumpy",
    "gusty",    "harsh",   "hasty",    "hearty",   "hefty",    "hollow",  "honest",   "humble", "hungry",  "idle",
    "jolly",    "keen",    "lavish",   "lazy",     "lenient",  "lively",  "lofty",    "lonely", "lucid",   "mellow",
    "mighty",   "modest",  "mute",     "nimble",   "noble",    "obscure", "odd",      "opaque", "ornate",  "patient",
    "placid",   "playful", "pliant",   "plump",    "polished", "proud",   "prudent",  "purple", "quaint",  "rapid",
    "reckless", "rigid",   "robust",   "rocky",    "rosy",     "rugged",  "rustic",   "sacred", "salty",   "secret",
    "serene",   "shabby",  "shady",    "sharp",    "shiny",    "shrewd",  "silent",   "silver", "sincere", "slender",
    "sly",      "smoky",   "smooth",   "solemn",   "sombre",   "sparse",  "stately",  "steady", "stern",   "stubborn",
    "sullen",   "sunny",   "swift",    "tactful",  "thirsty",  "thorny",  "thrifty",  "timid",  "trusty",  "urgent",
    "vacant",   "valiant", "wary",     "weary",    "witty",    "wobbly",  "wooden",   "yellow", "young",   "zealous"};

static const char *const nouns[] = {
    "abbey",     "almond",   "anchor",   "apron",      "arcade",   "armour",    "atlas",    "attic",      "bagpipe",
    "bamboo",    "barley",   "barrel",   "basket",     "beacon",   "beaver",    "beetle",   "bellows",    "bicycle",
    "biscuit",   "blanket",  "blossom",  "bonnet",     "bottle",   "boulder",   "bramble",  "bridge",     "broom",
    "bucket",    "buckle",   "bugle",    "burrow",     "butter",   "button",    "cabbage",  "cabin",      "camel",
    "canal",     "candle",   "canvas",   "canyon",     "cargo",    "carpet",    "carrot",   "cart",       "castle",
    "cathedral", "cellar",   "cello",    "chalk",      "chapel",   "cherry",    "chestnut", "chisel",     "cider",
    "cinnamon",  "citadel",  "clover",   "cobbler",    "cobweb",   "coffin",    "comet",    "copse",      "coral",
    "cottage",   "cradle",   "cricket",  "crown",      "crystal",  "cupboard",  "cushion",  "dagger",     "dairy",
    "dancer",    "desert",   "diamond",  "dragon",     "drum",     "duchess",   "dungeon",  "eagle",      "echo",
    "emblem",    "engine",   "estuary",  "fabric",     "farmer",   "feather",   "ferry",    "flannel",    "flute",
    "forest",    "galaxy",   "gallery",  "garden",     "gazelle",  "geyser",    "giraffe",  "glacier",    "goblet",
    "goose",     "granite",  "grocer",   "guitar",     "hammer",   "harbour",   "harness",  "hawthorn",   "hazel",
    "hedge",     "helmet",   "hermit",   "heron",      "honey",    "horizon",   "iceberg",  "inkwell",    "ivory",
    "jacket",    "jasmine",  "jigsaw",   "jungle",     "juniper",  "kayak",     "kennel",   "kettle",     "kite",
    "ladder",    "lagoon",   "lantern",  "lavender",   "ledger",   "lemon",     "library",  "lighthouse", "lilac",
    "lizard",    "lobster",  "lumber",   "magnet",     "magpie",   "mammoth",   "mandolin", "mansion",    "marble",
    "market",    "marsh",    "meadow",   "melon",      "mirror",   "monastery", "mosaic",   "museum",     "mushroom",
    "mustard",   "nectar",   "notebook", "nutmeg",     "oasis",    "oboe",      "olive",    "onion",      "opal",
    "orchard",   "orchid",   "oyster",   "paddle",     "palace",   "pancake",   "parcel",   "parrot",     "pasture",
    "pavement",  "pebble",   "pelican",  "pencil",     "pepper",   "pigeon",    "pillow",   "pirate",     "planet",
    "plough",    "pocket",   "poet",     "porridge",   "postcard", "prairie",   "prism",    "pudding",    "pumpkin",
    "puppet",    "quarry",   "rabbit",   "raccoon",    "raft",     "river",     "saddle",   "saffron",    "sailor",
    "sandal",    "satchel",  "saucer",   "scarecrow",  "scholar",  "shepherd",  "shovel",   "shutter",    "sieve",
    "singer",    "slipper",  "snail",    "sparrow",    "spindle",  "spoon",     "statue",   "stream",     "swallow",
    "tapestry",  "teapot",   "thimble",  "thistle",    "thunder",  "timber",    "tortoise", "tower",      "trellis",
    "tulip",     "turnip",   "turtle",   "typewriter", "valley",   "vanilla",   "vase",     "veranda",    "viaduct",
    "village",   "vineyard", "violin",   "volcano",    "waffle",   "walnut",    "walrus",   "warden",     "weasel",
    "whisker",   "whistle",  "windmill", "wizard",     "yacht",    "zebra",     "zeppelin"};

static const char *const verbs[] = {
    "admire",   "advise",   "agree",    "argue",    "arrange",  "arrive",  "ascend",  "assemble", "attach",    "attend",
    "avoid",    "banish",   "beckon",   "behave",   "believe",  "borrow",  "bounce",  "breathe",  "celebrate", "chatter",
    "choose",   "climb",    "collect",  "combine",  "complain", "conceal", "confuse", "connect",  "consider",  "construct",
    "consult",  "continue", "convince", "create",   "decorate", "defend",  "deliver", "deny",     "describe",  "develop",
    "dissolve", "divide",   "embrace",  "enjoy",    "erase",    "escape",  "examine", "exchange", "explain",   "explore",
    "extend",   "finish",   "flourish", "follow",   "forbid",   "forget",  "gallop",  "gather",   "giggle",    "grumble",
    "hesitate", "ignore",   "imagine",  "improve",  "include",  "inform",  "inherit", "inquire",  "insist",    "invent",
    "juggle",   "kneel",    "launch",   "linger",   "listen",   "loosen",  "measure", "mention",  "nibble",    "obey",
    "occupy",   "overcome", "permit",   "ponder",   "postpone", "praise",  "prepare", "prevent",  "protect",   "provide",
    "punish",   "pursue",   "receive",  "recite",   "recover",  "refuse",  "remain",  "remember", "repeat",    "reply",
    "retreat",  "reward",   "scatter",  "scribble", "settle",   "shiver",  "shout",   "sketch",   "squeeze",   "stumble",
    "suggest",  "surprise", "swim",     "tackle",   "tremble",  "vanish",  "warn",    "wonder",   "worship",   "yawn"};

_Static_assert(sizeof adjectives / sizeof *adjectives == N_ADJECTIVES, "adjectives");
_Static_assert(sizeof nouns / sizeof *nouns == N_NOUNS, "nouns");
_Static_assert(sizeof verbs / sizeof *verbs == N_VERBS, "verbs");

const char *words_adjective(int32_t i) { return adjectives[i]; }
const char *words_noun(int32_t i) { return nouns[i]; }
const char *words_verb(int32_t i) { return verbs[i]; }

const char *words_any(int32_t i) {
	return i < N_ADJECTIVES             ? adjectives[i]
	       : i < N_ADJECTIVES + N_NOUNS ? nouns[i - N_ADJECTIVES]
	                                    : verbs[i - N_ADJECTIVES - N_NOUNS];
}
